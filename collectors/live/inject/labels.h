/* Texts of ranges, made once and kept: what ITT calls a string handle and NVTX a registered string. */
#ifndef DEEPPROF_LABELS_H
#define DEEPPROF_LABELS_H
#include <stdint.h>

/* What a range of PyTorch's is. A range that a program marks (a function of autograd in Python looks the same), a node of
 * autograd as its engine runs it, and one that adds a gradient up. */
enum dp_role { DP_CALLED /* an operator */, DP_MARKED, DP_ENGINE, DP_ADDING };

/* The first six fields are those of ITT's string handle, which its clients read in place. */
struct dp_label {
    const char *text;
    void *wide;
    int reserved;
    void *owner;            /* of a handle that is not ours: the label with its text */
    struct dp_label *next;
    uint64_t name;          /* atomic: forks seen << 32 | id of dp_intern; 0: not asked yet */
    uint64_t hash;
    int is_operator, role, is_step; /* of enum dp_role; an optimizer's step */
    uint64_t group;         /* as `name` */
    const char *plain;      /* what it is named after: aten::addmm_ and AddmmBackward0 are addmm */
};

/* Any thread, no lock where the text is known. Never NULL: when no more fit, one label stands for all others. */
struct dp_label *dp_label(const char *text);
uint32_t dp_label_name(struct dp_label *label);   /* the id of its name, made at the first question */
uint32_t dp_label_group(struct dp_label *label);  /* the same with a star for a count at its end: one of many steps */
void dp_labels_forget(void);                      /* in the child of a fork: names have new ids there */
#endif
