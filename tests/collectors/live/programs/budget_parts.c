/* The sampling of iterations alone, for Python to drive. */
#include "../../../../deepprof/collectors/live/inject/context_budget.c"
#include "../../../../deepprof/collectors/live/inject/iteration_times.c"

#define EXPORT __attribute__((visibility("default")))

static int told;
static int64_t now_ns = 1;
static uint64_t allowed;

uint64_t setting(const char *name, uint64_t fallback, uint64_t least, uint64_t most)
{
    (void)name, (void)least, (void)most;
    return allowed ? allowed : fallback;
}

int64_t dp_now_ns(void) { return now_ns; }
void dp_notice_again(uint32_t code, const char *text) { told += code && text; }

EXPORT void allow(int percent) { allowed = (uint64_t)percent, budget_prepare(); }
EXPORT int lines_told(void) { return told; }
EXPORT void let_pass(int64_t passed_ns) { now_ns += passed_ns; }
EXPORT double lost_by_measured(void) { return lost_times; }
EXPORT int step(int is_on) { return budget_step(is_on); }
EXPORT void look(double cost_ns, double passed_ns) { budget_look(cost_ns, passed_ns); }
EXPORT void reset(void) { budget_reset(); }
EXPORT int is_collected(void) { return budget_collects(); }
EXPORT int every(void) { return (int)stride; }

EXPORT int take_left_out(void)
{
    const char *what;
    return (int)budget_take_left_out(&what) * (what[1] == 'i' ? 1 : -1);
}
