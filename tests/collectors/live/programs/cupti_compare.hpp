/* Prints the shapes of cupti_facts.h beside those of NVIDIA's headers; test_cupti_headers.py writes the main function. */
#include <climits>
#include <cstdio>
#include <cupti.h>
#include "signatures.hpp"

#define _Static_assert static_assert
namespace facts {
#include "cupti_facts.h"
}

#define FUNCTION(ours, theirs) std::printf("function " #theirs " %d\n", (int)fit<decltype(ours), decltype(&theirs)>::value)
#define PLACE(record, field) offsetof(record, field), sizeof(((record *)nullptr)->field)
#define FIELD(record, field, their_record, theirs)                                                                     \
    std::printf("field " #record "." #field " %zu+%zu %zu+%zu\n", PLACE(facts::record, field), PLACE(their_record, theirs))
#define SIZE(record, theirs) std::printf("size " #record " %zu %zu\n", sizeof(facts::record), sizeof(theirs))
#define NUMBER(ours, theirs) std::printf("number " #ours " %lld %lld\n", (long long)facts::ours, (long long)theirs)
#define EXPECTED(theirs, ours) std::printf("number " #theirs " %lld %lld\n", (long long)ours, (long long)theirs)
