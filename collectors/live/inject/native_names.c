/* Names of C++, demangled where the process has a library of C++. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "native_names.h"

static char *(*demangle)(const char *, char *, size_t *, int *);

/* What is instantiated in everybody's library, and says nothing of the program. */
static const char *const HIDDEN[] = {"at::", "c10::", "torch::", "pybind11::", "nanobind::", "std::", "__gnu_cxx::", "_start"};
static const char NAMELESS[] = "(anonymous namespace)", OPERATOR[] = "operator";

/* A library that is here, never one that is not: a program may bring a newer one of its own later. */
void native_names_prepare(void)
{
    void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
    demangle = (__typeof__(demangle))dlsym(library ? library : RTLD_DEFAULT, "__cxa_demangle");
}

/* Behind what `at` opens. */
static const char *skip(const char *at, char opens, char closes)
{
    int depth = 0;
    do {
        depth += (*at == opens) - (*at == closes && at[-1] != '-'); /* no end is that of an arrow */
    } while (*at++ && depth);
    return depth ? at - 1 : at;
}

static int is_operator(const char *at, const char *text)
{
    if (strncmp(at, OPERATOR, sizeof OPERATOR - 1))
        return 0;
    int before = at > text ? (unsigned char)at[-1] : 0, after = (unsigned char)at[sizeof OPERATOR - 1];
    return !isalnum(before) && before != '_' && !isalnum(after) && after != '_';
}

/* How much of it is to be kept as it is: "(anonymous namespace)", or an operator up to its parameters; 0: it is neither. */
static size_t measure_part(const char *at, const char *text)
{
    if (!strncmp(at, NAMELESS, sizeof NAMELESS - 1))
        return sizeof NAMELESS - 1;
    if (!is_operator(at, text))
        return 0;
    const char *sign = at + sizeof OPERATOR - 1;
    return sizeof OPERATOR - 1 + (*sign == '(' ? 2 : strcspn(sign, *sign == ' ' ? "(" : "( "));
}

/* Behind parameters: const, a reference, or what the compiler has made of the function. */
static int is_qualifier(const char *at)
{
    size_t length = strcspn(at, " :&[");
    return !length || (length == 5 && !strncmp(at, "const", 5)) || (length == 8 && !strncmp(at, "volatile", 8));
}

/* Else what stands before a space is a return type. */
static const char *skip_space(const char *at, size_t *length)
{
    if (at[-1] != ')' || !is_qualifier(at + 1)) {
        *length = at[1] == '<' ? *length : 0; /* operator<< <int> */
        return at + 1;
    }
    while (*at == ' ' && is_qualifier(at + 1))
        at += at[1] == '[' ? strlen(at) : 1 + strcspn(at + 1, " :");
    return at;
}

static void cut(const char *text, char *to, size_t room)
{
    size_t length = 0, part;
    for (const char *at = text; *at && length + 1 < room;) {
        if ((part = measure_part(at, text)) && length + part < room)
            memcpy(to + length, at, part), length += part, at += part;
        else if (*at == '<')
            at = skip(at, '<', '>');
        else if (*at == '(')
            at = skip(at, '(', ')');
        else if (*at == ' ' && at > text)
            at = skip_space(at, &length);
        else
            to[length++] = *at++;
    }
    to[length] = 0;
}

int native_name(const char *symbol, char *text, size_t room)
{
    int failed = -1;
    char *readable = demangle && symbol[0] == '_' ? demangle(symbol, NULL, NULL, &failed) : NULL;
    if (readable && !failed)
        cut(readable, text, room);
    if (!readable || failed || !text[0])
        snprintf(text, room, "%.*s", (int)(1 + strcspn(symbol + 1, ".")), symbol); /* .constprop.0 and the like */
    free(readable);
    for (unsigned i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (!strncmp(text, HIDDEN[i], strlen(HIDDEN[i])))
            return 0;
    return 1;
}
