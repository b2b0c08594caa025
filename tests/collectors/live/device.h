/* What test programs share: the collector loaded as a driver does it, and records launched on the device of mock_cupti.c. */
#ifndef DEVICE_H
#define DEVICE_H
#include <stdint.h>
#include <stdio.h>
#include "mock_cupti.h"

/* What was launched, as the file that JOB_TRUTH names holds it. */
struct truth {
    int64_t start, end;
    uint64_t nbytes, graph_node;
    uint32_t kind, device, context, stream, correlation, graph, type, name;
};

enum { NAMES = 50 };
extern char names[NAMES][64];
extern int (*is_enabled)(int), (*emit)(const struct mock_record *), (*stray)(const struct mock_record *), (*other_is_whole)(void);
extern void *(*begin_record)(const struct mock_record *);
extern void (*end_record)(void *, uint64_t, uint64_t), (*capture)(uint32_t);
extern void (*refuse)(int), (*delay)(int), (*restart)(void), (*torch_profiler)(int), (*proton)(int), (*monitor)(int);
extern unsigned long (*dropped)(void), (*walked)(void), (*other_count)(void), (*refused_count)(void);
extern int (*initialize)(void);
extern void (*pause_all)(void), (*resume_all)(void), (*push)(const char *), (*pop)(void);
extern uint64_t base; /* when launching began, on the device's clock */
extern long kept;

uint64_t now(void);                      /* the device's clock */
enum { PATIENCE_MS = 300000 };
void nap(long microseconds);
void await(int kind, int wanted);        /* until the kind is enabled, or no longer */
int launch(const struct mock_record *);  /* whether the device kept it; it is told as true if so */
void tell(const struct mock_record *);   /* it is true: begin_record and end_record tell nothing themselves */
struct mock_record kernel(long i, uint32_t stream);
void start(void);                        /* load both libraries, let the collector begin, and wait until it collects */
void start_after(void (**client)(int));  /* another client of CUPTI is there first; nobody waits for the collector */
void finish(void);                       /* the line that a test reads: kept, dropped, seconds */
#endif
