/*
 * Integers out of the leaf pages of an SQLite table, as pages.py hands them over: plain C11 without Python.h.
 *
 * The pages are data from anywhere. Every number in them is checked before it is used as a place or a length, and a
 * page with anything unusual about it is refused: SQLite itself then reads the table, or says what is wrong with it.
 * The format is described at https://www.sqlite.org/fileformat2.html (1.6 B-tree Pages, 2.1 Record Format).
 */
#include <stdint.h>
#include <stddef.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { DP_VERSION = 1, REFUSED = -1 };
enum { LEAF = 0x0D, HEADER_NBYTES = 8, SMALLEST_CELL = 4, OVERFLOW_POINTER = 4 };
enum { UNWANTED = -1 };
enum { STORED, THE_ROWID, WITH_DEFAULT }; /* kinds of columns */
#define MISSING INT64_MIN /* null, and whatever is no integer */

/* Changes with every change of a signature below; pages.py refuses a library of another version. */
EXPORT int32_t dp_pages_version(void) { return DP_VERSION; }

struct bytes {
    const uint8_t *at, *end;
};

/* What the caller wants: for each column of the record where its values go, up to the last one wanted. */
struct wanted {
    const int32_t *places; /* `width` of them: index of an output, or UNWANTED */
    int32_t width;
    const uint8_t *kinds;   /* by output */
    int64_t *const *values; /* by output, `capacity` each */
    int64_t capacity;
};

static uint32_t two_bytes(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }

/* Reads a varint of up to nine bytes; returns 0 where it does not end before `from->end`. */
static int read_varint(struct bytes *from, uint64_t *value)
{
    uint64_t read = 0;
    for (int i = 0; i < 8; i++) {
        if (from->at == from->end) return 0;
        uint8_t byte = *from->at++;
        read = read << 7 | (byte & 0x7f);
        if (byte < 0x80) {
            *value = read;
            return 1;
        }
    }
    if (from->at == from->end) return 0;
    *value = read << 8 | *from->at++;
    return 1;
}

/* The size of a stored value by its serial type. */
static uint64_t size_of(uint64_t type)
{
    static const uint8_t sizes[12] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
    return type < 12 ? sizes[type] : (type - 12) / 2;
}

/* A big-endian two's complement integer of 1 to 8 bytes. */
static int64_t integer_at(const uint8_t *at, uint64_t size)
{
    uint64_t value = at[0] & 0x80 ? UINT64_MAX : 0;
    for (uint64_t i = 0; i < size; i++) value = value << 8 | at[i];
    return (int64_t)value;
}

static int64_t value_of(uint64_t type, const uint8_t *at)
{
    if (type >= 1 && type <= 6) return integer_at(at, size_of(type));
    if (type == 8 || type == 9) return (int64_t)type - 8;
    return MISSING;
}

/* How much of a payload of `size` bytes lies on its leaf page. */
static uint64_t local_size(uint64_t size, uint32_t usable)
{
    uint64_t most = usable - 35, least = (usable - 12) * 32 / 255 - 23;
    if (size <= most) return size;
    uint64_t local = least + (size - least) % (usable - 4);
    return local <= most ? local : least;
}

/*
 * Writes the wanted columns of one record as row `row`. `record` is its local part, `size` all of it.
 * Columns that the record lacks, which were added to the table later, are null if they have no default.
 */
static int read_record(struct bytes record, uint64_t size, int64_t rowid, const struct wanted *wanted, int64_t row)
{
    const uint8_t *start = record.at;
    uint64_t header_size, local = (uint64_t)(record.end - start);
    if (!read_varint(&record, &header_size)) return 0;
    if (header_size > local || header_size < (uint64_t)(record.at - start)) return 0;
    struct bytes header = {record.at, start + header_size};
    uint64_t offset = header_size;
    for (int32_t column = 0; column < wanted->width; column++) {
        int32_t place = wanted->places[column];
        int stored = header.at < header.end;
        uint64_t type = 0;
        if (stored && !read_varint(&header, &type)) return 0;
        uint64_t value_size = size_of(type);
        if (type == 10 || type == 11 || value_size > size - offset) return 0;
        if (place != UNWANTED) {
            uint8_t kind = wanted->kinds[place];
            if (kind == WITH_DEFAULT && !stored) return 0;
            if (type < 12 && offset + value_size > local) return 0; /* on an overflow page */
            wanted->values[place][row] = kind == THE_ROWID ? rowid : value_of(type, start + offset);
        }
        offset += value_size;
    }
    return 1;
}

/* Reads the cell at `cell`; gives the number of bytes it takes, 0 where it is refused. */
static uint64_t read_cell(struct bytes cell, uint32_t usable, const struct wanted *wanted, int64_t row)
{
    const uint8_t *start = cell.at;
    uint64_t size, rowid;
    if (!read_varint(&cell, &size) || !read_varint(&cell, &rowid)) return 0;
    if (size > INT32_MAX) return 0; /* SQLite holds none that are larger */
    uint64_t local = local_size(size, usable), tail = local < size ? OVERFLOW_POINTER : 0;
    if (local + tail > (uint64_t)(cell.end - cell.at)) return 0;
    struct bytes record = {cell.at, cell.at + local};
    if (!read_record(record, size, (int64_t)rowid, wanted, row)) return 0;
    uint64_t taken = (uint64_t)(record.end - start) + tail;
    return taken < SMALLEST_CELL ? SMALLEST_CELL : taken;
}

/* The number of cells of a leaf page, REFUSED where it is none or has more than it can hold. */
static int64_t cells_of(const uint8_t *page, uint32_t usable)
{
    int64_t cells = two_bytes(page + 3);
    if (page[0] != LEAF || HEADER_NBYTES + 2 * cells > (int64_t)usable) return REFUSED;
    return cells;
}

/* Reads all cells of `page` as rows from `row` on. Cells that lie on each other would be rows made of nothing. */
static int read_page(const uint8_t *page, uint32_t usable, const struct wanted *wanted, int64_t row, int64_t cells)
{
    uint32_t first = HEADER_NBYTES + 2 * (uint32_t)cells;
    uint64_t left = usable - first;
    for (int64_t i = 0; i < cells; i++) {
        uint32_t at = two_bytes(page + HEADER_NBYTES + 2 * i);
        if (at < first || at > usable - SMALLEST_CELL) return 0;
        struct bytes cell = {page + at, page + usable};
        uint64_t taken = read_cell(cell, usable, wanted, row + i);
        if (taken == 0 || taken > left) return 0;
        left -= taken;
    }
    return 1;
}

/* Returns how many rows `count` leaf pages of `page_size` bytes hold, REFUSED where one is no leaf. */
EXPORT int64_t dp_pages_rows(const uint8_t *pages, int64_t count, uint32_t page_size, uint32_t usable)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t cells = cells_of(pages + i * (int64_t)page_size, usable);
        if (cells < 0) return REFUSED;
        rows += cells;
    }
    return rows;
}

/*
 * Reads the rows of `count` leaf pages from row `row` on, in stored order, `usable` of each page's bytes being content.
 *
 * places: for each of the first `width` columns of a record the output it goes to, or -1. kinds: for each output,
 * what column it is. values: for each output where its `capacity` values go; INT64_MIN for what is no integer.
 * Returns the row after the last one, REFUSED where anything is not as it should be.
 */
EXPORT int64_t dp_pages_read(const uint8_t *pages, int64_t count, uint32_t page_size, uint32_t usable,
                             const int32_t *places, int32_t width, const uint8_t *kinds,
                             int64_t *const *values, int64_t capacity, int64_t row)
{
    const struct wanted wanted = {places, width, kinds, values, capacity};
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *page = pages + i * (int64_t)page_size;
        int64_t cells = cells_of(page, usable);
        if (cells < 0 || cells > capacity - row || !read_page(page, usable, &wanted, row, cells)) return REFUSED;
        row += cells;
    }
    return row;
}
