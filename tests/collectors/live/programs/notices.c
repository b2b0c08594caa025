/* Tells the same thing often, and counts how often the worker is woken for it: prints wakes before and after it was told. */
#include <stdio.h>
#include "parts.h"

static int wakes;
void dp_wake(void) { wakes++; }

int main(void)
{
    uint32_t code;
    char text[256];
    for (int i = 0; i < 100; i++)
        dp_notice(7, "first");
    printf("%d", wakes);
    while (notices_next(&code, text, sizeof text))
        printf(" %u:%s", code, text);
    for (int i = 0; i < 100; i++)
        dp_notice(7, "later");
    dp_notice(8, "other");
    printf(" %d", wakes);
    while (notices_next(&code, text, sizeof text))
        printf(" %u:%s", code, text);
    notices_again();
    while (notices_next(&code, text, sizeof text))
        printf(" %u:%s", code, text);
    return 0;
}
