/* Whether the processor's count is a clock. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include "context_clock.h"

#if defined(__x86_64__)
int dp_counts_ticks;

void context_clock_choose(void)
{
    char name[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    dp_counts_ticks = file && fgets(name, sizeof name, file) && (!strcmp(name, "tsc\n") || !strcmp(name, "kvm-clock\n"));
    if (file)
        fclose(file);
}
#else
void context_clock_choose(void) {}
#endif
