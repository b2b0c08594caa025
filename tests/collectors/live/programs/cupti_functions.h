/* Functions of CUPTI as we know them, beside those of cupti_facts.h: test_cupti_headers.py compares both with NVIDIA's. */
#include <stddef.h>
#include <stdint.h>

struct cupti {
    int (*ActivityRegisterTimestampCallback)(uint64_t (*now)(void));
    int (*ActivityFlushPeriod)(uint32_t milliseconds);
    int (*ActivityGetAttribute)(int attribute, size_t *nbytes, void *value);
    int (*ActivitySetAttribute)(int attribute, size_t *nbytes, void *value);
    int (*GetVersion)(uint32_t *);
    int (*Subscribe)(void **subscriber, void (*)(void *, int, uint32_t, const void *), void *user);
    int (*Unsubscribe)(void *subscriber);
    int (*Subscribe_v2)(void **subscriber, void (*)(void *, int, uint32_t, const void *), void *user, void *parameters);
    int (*ActivityRegisterCallbacks_v2)(void *subscriber, void (*)(uint8_t **, size_t *, size_t *, void *),
                                        void (*)(uint8_t *, size_t, size_t, void *));
    int (*ActivityEnable_v2)(void *subscriber, int kind, void *config);
    int (*ActivityDisable_v2)(void *subscriber, int kind, void *config);
    int (*ActivitySetAttribute_v2)(void *subscriber, int attribute, size_t *nbytes, void *value);
    int (*ActivityGetNextRecord_v2)(void *subscriber, uint8_t *buffer, size_t valid_nbytes, void **record);
    int (*ActivityGetNumDroppedRecords_v2)(void *subscriber, void *context, uint32_t stream, size_t *dropped);
    int (*GetTimestamp_v2)(void *subscriber, uint64_t *);
};
