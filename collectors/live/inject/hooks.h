/* What the library exports. */
#ifndef DEEPPROF_HOOKS_H
#define DEEPPROF_HOOKS_H
#define DP_API __attribute__((visibility("default")))
#define DP_LIBRARY_VERSION "1"

void dp_domains_forget(void); /* itt.c: in the child of a fork */
#endif
