// How a job launches on the device of mock.cpp.
#ifndef MOCK_H
#define MOCK_H
#include <cstdint>

extern "C" {
void mock_await_start();                         // returns when the tool collects
void mock_load(uint64_t kernel, const char *name);
int mock_launch(uint64_t kernel);                // whether the record was kept; also the next two
int mock_copy(int direction, uint64_t nbytes);
int mock_launch_badly();                         // a record without times
void mock_range(const char *text);               // opens and closes it
void mock_hold(int is);                          // the SDK's thread gives no buffer
unsigned long mock_dropped();                    // records, as the SDK counts them
}
#endif
