/* Lines for people: one for each code, told once on every connection. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "parts.h"

enum { MOST = 64, LENGTH = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct notice {
    uint32_t code;
    int told;
    char text[LENGTH];
} notices[MOST];
static int count;

static void keep(uint32_t code, const char *text, int again)
{
    pthread_mutex_lock(&lock);
    int place = 0;
    while (place < count && notices[place].code != code)
        place++;
    int is_new = place == count && place < MOST;
    if (place < MOST) {
        count += is_new;
        notices[place].code = code;
        notices[place].told &= !again;
        snprintf(notices[place].text, LENGTH, "%s", text); /* the newest, where it has not been told yet */
    }
    pthread_mutex_unlock(&lock);
    if (is_new || again)
        dp_wake();
}

void dp_notice(uint32_t code, const char *text) { keep(code, text, 0); }
void dp_notice_again(uint32_t code, const char *text) { keep(code, text, 1); }

int notices_next(uint32_t *code, char *text, size_t room)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count && !found; i++) {
        if (notices[i].told)
            continue;
        found = notices[i].told = 1;
        *code = notices[i].code;
        snprintf(text, room, "%s", notices[i].text);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void notices_again(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < count; i++)
        notices[i].told = 0;
    pthread_mutex_unlock(&lock);
}

void notices_forget(void) { count = 0; } /* under the lock */
void notices_lock(void) { pthread_mutex_lock(&lock); }
void notices_unlock(void) { pthread_mutex_unlock(&lock); }
