/* Prints what functions with these symbols are called, behind 0 for those that are left out: native_names SYMBOL ... */
#include <stdio.h>
#include "native_names.h"

int main(int count, char **words)
{
    char text[256];
    native_names_prepare();
    for (int i = 1; i < count; i++) {
        int is_shown = native_name(words[i], text, sizeof text);
        printf("%d %s\n", is_shown, text);
    }
    return 0;
}
