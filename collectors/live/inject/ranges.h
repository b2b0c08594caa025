/* Ranges that open and close on the threads of the job: kept per thread, gathered by the worker.
 *
 * A thread writes to its own ring and never waits, not for a lock and not for the worker. */
#ifndef DEEPPROF_RANGES_H
#define DEEPPROF_RANGES_H
#include <stdint.h>
#include "core.h"

extern const struct dp_source dp_ranges;

int dp_ranges_wanted(void);   /* one load: whether a range that begins now may be kept */

/* Ranges of one `owner` (an ITT or NVTX domain) nest on a thread; those of two owners need not. A range that began while
 * none was wanted, or ends after collecting was switched off, is not kept. Both return the range's level, as NVTX has it:
 * the number of open ranges of its owner around it. The depth in a record is that of all owners' ranges when it began:
 * what ran inside what is the same question for all of them. End returns -1 where there is none. `category` 0 is an operator: nested in more than DEEPPROF_DEPTH operators it is left out, and so is, by
 * category DP_BY_NAME, what has no sign of an operator and lies in one, as the parts of a backward function do. */
int dp_range_begin(uintptr_t owner, uint32_t name, uint8_t category, uint8_t source);
int dp_range_end(uintptr_t owner);
void dp_range_mark(uint32_t name, uint8_t category, uint8_t source);        /* an instant */

uint64_t dp_range_open(uint32_t name, uint8_t category, uint8_t source);    /* may be closed by any thread; 0: not kept */
void dp_range_close(uint64_t id);
#endif
