/* Calls every function of NVTX that makes a range, through NVIDIA's own header, and prints what they return. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <nvtx3/nvToolsExt.h>

enum { LONG = 1200, DEEP = 600 };

static void collect(void)
{
    void *library = dlopen(getenv("NVTX_INJECTION64_PATH"), RTLD_NOW);
    int (*start)(int) = NULL;
    if (library)
        *(void **)&start = dlsym(library, "deepprof_operators");
    if (!start || start(0))
        exit(3);
}

static nvtxEventAttributes_t about(const char *text)
{
    nvtxEventAttributes_t made;
    memset(&made, 0, sizeof made);
    made.version = NVTX_VERSION;
    made.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    made.category = 7;
    made.colorType = NVTX_COLOR_ARGB;
    made.color = 0xff00ff00;
    made.messageType = NVTX_MESSAGE_TYPE_ASCII;
    made.message.ascii = text;
    return made;
}

static nvtxEventAttributes_t about_wide(const wchar_t *text)
{
    nvtxEventAttributes_t made = about(NULL);
    made.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    made.message.unicode = text;
    return made;
}

static nvtxEventAttributes_t about_registered(nvtxStringHandle_t text)
{
    nvtxEventAttributes_t made = about(NULL);
    made.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    made.message.registered = text;
    return made;
}

static void call_core(void)
{
    nvtxEventAttributes_t mark = about("mark ex"), start = about("start ex"), push = about("push ex");
    nvtxMarkEx(&mark);
    nvtxMarkA("mark ascii");
    nvtxMarkW(L"mark wide");
    nvtxRangeId_t ids[] = {nvtxRangeStartEx(&start), nvtxRangeStartA("start ascii"), nvtxRangeStartW(L"start wide")};
    for (int i = 0; i < 3; i++)
        nvtxRangeEnd(ids[i]);
    printf("core %d", nvtxRangePushEx(&push));
    printf(" %d", nvtxRangePushA("push ascii"));
    printf(" %d", nvtxRangePushW(L"push wide"));
    for (int i = 0; i < 3; i++)
        printf(" %d", nvtxRangePop());
    printf(" %d\n", nvtxRangePop() < 0);
}

static void call_domain(nvtxDomainHandle_t domain, const char *mark, const char *start, const char *push)
{
    nvtxEventAttributes_t told[] = {about(mark), about(start), about(push)};
    nvtxStringHandle_t plain = nvtxDomainRegisterStringA(domain, "registered"),
                       wide = nvtxDomainRegisterStringW(domain, L"registered wide");
    nvtxEventAttributes_t known[] = {about_registered(plain), about_registered(wide)};
    nvtxDomainMarkEx(domain, &told[0]);
    nvtxRangeId_t id = nvtxDomainRangeStartEx(domain, &told[1]);
    nvtxDomainRangeEnd(domain, id);
    printf("domain %d", nvtxDomainRangePushEx(domain, &told[2]));
    printf(" %d", nvtxDomainRangePushEx(domain, &known[0]));
    printf(" %d", nvtxDomainRangePushEx(domain, &known[1]));
    for (int i = 0; i < 3; i++)
        printf(" %d", nvtxDomainRangePop(domain));
    printf(" %d\n", nvtxDomainRangePop(domain) < 0);
}

/* Ranges of two domains cross: each end is its own domain's. */
static void cross(nvtxDomainHandle_t domain)
{
    nvtxEventAttributes_t first = about("first of mine"), second = about("second of mine");
    printf("cross %d", nvtxRangePushA("outer"));
    printf(" %d", nvtxDomainRangePushEx(domain, &first));
    printf(" %d", nvtxRangePushA("inner"));
    printf(" %d", nvtxDomainRangePushEx(domain, &second));
    printf(" %d", nvtxRangePop());
    printf(" %d", nvtxRangePop());
    printf(" %d", nvtxDomainRangePop(domain));
    printf(" %d", nvtxRangePushA("after"));
    printf(" %d", nvtxRangePop());
    printf(" %d\n", nvtxDomainRangePop(domain));
}

static void spell(void)
{
    static wchar_t text[LONG + 1];
    wchar_t broken[] = {L'<', 0xD800, 0x110000, -1, L'>', 0};
    nvtxEventAttributes_t wide = about_wide(L"a\u00e4\u20ac\U0001f600z"), none = about(NULL);
    nvtxMarkEx(&wide);
    nvtxMarkW(broken);
    nvtxMarkW(L"");
    nvtxMarkW(NULL);
    nvtxMarkEx(&none);
    for (int i = 0; i < LONG; i++)
        text[i] = 0x20ac;
    nvtxMarkW(text);
}

/* Payloads are left out, and change nothing. */
static void pay(void)
{
    static const int32_t TYPES[] = {NVTX_PAYLOAD_TYPE_UNSIGNED_INT64, NVTX_PAYLOAD_TYPE_INT64, NVTX_PAYLOAD_TYPE_DOUBLE,
                                    NVTX_PAYLOAD_TYPE_UNSIGNED_INT32, NVTX_PAYLOAD_TYPE_INT32, NVTX_PAYLOAD_TYPE_FLOAT};
    nvtxEventAttributes_t made = about("paid");
    for (unsigned i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        made.payloadType = TYPES[i];
        made.payload.ullValue = UINT64_C(0x8000000000000001);
        nvtxRangePushEx(&made);
        nvtxRangePop();
    }
}

/* More ranges than are kept lie in one of another domain, which ends before them. */
static void nest(nvtxDomainHandle_t domain)
{
    nvtxEventAttributes_t deep = about("deep");
    nvtxRangePushA("under");
    for (int i = 0; i < DEEP; i++)
        nvtxDomainRangePushEx(domain, &deep);
    printf("deep %d", nvtxRangePop());
    printf(" %d", nvtxRangePop() < 0);
    for (int i = 0; i < DEEP - 1; i++)
        nvtxDomainRangePop(domain);
    printf(" %d", nvtxDomainRangePop(domain));
    printf(" %d\n", nvtxDomainRangePop(domain) < 0);
}

int main(void)
{
    nvtxRangePushA("loads the injection, which collects nothing yet");
    nvtxRangePop();
    collect();
    nvtxDomainHandle_t mine = nvtxDomainCreateA("mine"), wide = nvtxDomainCreateW(L"mine, wide");
    call_core();
    call_domain(mine, "mark in mine", "start in mine", "push in mine");
    call_domain(wide, "mark in wide", "start in wide", "push in wide");
    cross(mine);
    spell();
    pay();
    nest(mine);
    nvtxDomainDestroy(wide);
    return 0;
}
