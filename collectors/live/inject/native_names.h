/* How functions in native code are called. */
#ifndef DEEPPROF_NATIVE_NAMES_H
#define DEEPPROF_NATIVE_NAMES_H
#include <stddef.h>

void native_names_prepare(void);     /* finds the demangler of this process */

/* Writes what people call the function with this symbol: no parameters, template arguments or return type. Returns 0
 * where nobody asks for it: of PyTorch's headers, of pybind11's, or of C++ itself. */
int native_name(const char *symbol, char *text, size_t room);
#endif
