// Functions of C++ that run the operators of made_operators.c, for an interpreter to call through ctypes; with -DPROGRAM
// a program of its own, without an interpreter: native_calls COUNT. It waits for a line.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <ucontext.h>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))
#define KEPT __attribute__((noinline, noclone))
#define AFTER asm volatile("") // what is called before is no last call: its caller stays on the stack

extern "C" {
int made_start(const char *path);
void made_begin(const char *name);
void made_end(void);
}

namespace shop {

// Ends as it is left, also by an exception.
struct Operator {
    __attribute__((always_inline)) explicit Operator(const char *name) { made_begin(name); }
    __attribute__((always_inline)) ~Operator() { made_end(); }
};

KEPT void helper(int)
{
    Operator inner("aten::inner");
    AFTER;
}

template <class T> struct Layer {
    KEPT static std::vector<T> forward(T value)
    {
        Operator made("aten::made");
        helper(1);
        return {value};
    }
};

KEPT void descend(int levels)
{
    if (levels)
        descend(levels - 1);
    else
        Layer<int>::forward(1);
    AFTER;
}

struct Failed {};

KEPT void fail()
{
    Operator inner("aten::inner");
    throw Failed();
}

namespace {
KEPT void hidden() // which no table of symbols for other libraries has
{
    Layer<double>::forward(1);
    AFTER;
}
} // namespace

static ucontext_t here, there;
static char stack_of_its_own[1 << 16];

KEPT void switched()
{
    Layer<int>::forward(1);
    AFTER;
}

} // namespace shop

EXPORT void native_nested(void)
{
    shop::Layer<float>::forward(1);
    AFTER;
}

EXPORT void native_descend(int levels)
{
    shop::descend(levels);
    AFTER;
}

EXPORT void native_thrown(void)
{
    try {
        shop::Operator made("aten::made");
        shop::fail();
    } catch (const shop::Failed &) {
        shop::helper(2);
    }
}

EXPORT void native_hidden(void)
{
    shop::hidden();
    AFTER;
}

EXPORT void native_thread(int count)
{
    std::thread([count] {
        for (int i = 0; i < count; i++)
            shop::Layer<int>::forward(1);
    }).join();
}

// On a stack of its own, and back in between.
EXPORT void native_switched(void)
{
    getcontext(&shop::there);
    shop::there.uc_stack.ss_sp = shop::stack_of_its_own;
    shop::there.uc_stack.ss_size = sizeof shop::stack_of_its_own;
    shop::there.uc_link = &shop::here;
    makecontext(&shop::there, shop::switched, 0);
    swapcontext(&shop::here, &shop::there);
}

#ifdef PROGRAM
int main(int, char **words)
{
    void *library = dlopen(getenv("DEEPPROF_INJECT"), RTLD_NOW);
    auto contexts = library ? (int (*)(int, const char *, int))dlsym(library, "deepprof_contexts") : nullptr;
    auto operators = library ? (int (*)(int))dlsym(library, "deepprof_operators") : nullptr;
    auto finish = library ? (void (*)(void))dlsym(library, "deepprof_finish") : nullptr;
    if (!contexts || !operators || !finish)
        return 2;
    contexts(3, "", 1);
    if (made_start(getenv("DEEPPROF_INJECT")) || operators(1))
        return 3;
    getchar();
    for (int i = 0; i < atoi(words[1]); i++)
        native_nested();
    finish();
    return 0;
}
#endif
