// The ragged columns of a batch as rows (pointer, length, kind, trailing shape) that keep alive what they point into.
#pragma once

#include <optional>

#include "../output/allocate.hpp"

namespace quadrat {

// No garbage is collected while one of these lives, not between the bytecodes of called Python code either.
class WithoutCollection {
public:
    WithoutCollection() : collects_(PyGC_Disable() != 0) {}
    ~WithoutCollection() {
        if (collects_) {
            PyGC_Enable();
        }
    }
    WithoutCollection(WithoutCollection&& other) noexcept : collects_(std::exchange(other.collects_, false)) {}
    WithoutCollection& operator=(WithoutCollection&&) = delete;

private:
    bool collects_;
};

// A stretch of work in which nothing of the user's runs, so that a pointer into what the user owns stays good: the GIL
// is held, no Python code is called, and no garbage is collected. Up to CPython 3.11 whatever makes a container may
// collect, and so call finalizers; later versions collect between bytecodes only. Without the GIL other threads run all
// the same: lists are read under their locks, and arrays and tensors must not be resized, as their libraries say.
#if PY_VERSION_HEX < 0x030C0000
using NoUserCode = WithoutCollection;
#else
struct NoUserCode {
    NoUserCode() {}
    ~NoUserCode() {}
    NoUserCode(NoUserCode&&) noexcept {}
};
#endif

// What one value of a feature is; a column's `forms` is the union over its rows.
enum Form : std::uint32_t {
    form_list = 1,
    form_tuple = 2,
    form_array = 4,    // numpy.ndarray of one dimension, or more, see form_deep
    form_tensor = 8,   // torch.Tensor of one dimension, or more, in host memory
    form_number = 16,  // of Python
    form_other = 32,
    form_scalar = 64,          // a number of NumPy's
    form_tensor_number = 128,  // torch.Tensor of no dimension
    form_deep = 256,           // besides the form of a row: of more than one dimension, its elements side by side
    form_derived = 512,  // besides that of an array or tensor: of a class derived from theirs, see Interop::base_of
};

// What a signature says of the lengths of the rows of a column; bits.
enum Lengths : std::uint32_t {
    lengths_equal = 1,     // all rows are equally long
    lengths_aligned = 2,   // as long as those of the column that the batch is padded by
    lengths_full = 4,      // as long as the batch is wide
    lengths_deep = 8,      // of tokens with dimensions of their own: form_deep
    lengths_derived = 16,  // some are form_derived
};

// More that a signature says of a column; bits.
enum Trait : std::uint32_t {
    trait_starts = 1,    // its first row is not empty
    trait_empty = 2,     // some row is empty
    trait_backward = 4,  // some array does not step forward by whole elements
    trait_over = 8,      // of the column that the batch is padded by: a row is longer than the batch is wide
    // Of rows of form_other:
    trait_none = 16,     // the first row is None
    trait_text = 32,     // the first row is a str
    trait_nothing = 64,  // all are None
    trait_shaped = 128   // all are rows of numbers of other dimensions, see Column::shapes
};

struct Column {
    std::vector<py::object> owners;  // one per row; empty when the memory is kept alive elsewhere
    // data is null where the owner is to be read (lists, tuples, numbers), else where the row was when last seen.
    mutable std::vector<Row> rows;      // their lengths count elements
    std::vector<std::int64_t> lengths;  // in tokens
    Trailing trailing;                  // of all rows but empty lists: one that has other dimensions is form_other
    std::vector<Trailing> shapes;       // where some row is: that of each row, the first dimension included
    std::int64_t inner = 1;             // elements of a token
    std::uint32_t forms = 0;
    std::uint32_t first_form = 0;
    std::uint32_t kinds = 0;  // one bit per Kind seen among the rows that are not empty
    std::int64_t min_length = 0;
    std::int64_t max_length = 0;
    std::int64_t total = 0;
    bool keeps_kind = false;  // whether arrays and tensors tell their kind where no row has elements
    bool objects = false;     // whether any owner is to be read
    bool movable = false;     // whether any row points into memory that its owner, an array or tensor, may exchange
    std::uint32_t others = trait_nothing | trait_shaped;  // Trait, of the rows of form_other
    std::vector<std::unique_ptr<char[]>> kept;            // numbers of rows whose owner is not asked again

    explicit Column(std::int64_t rows_expected);
    // Takes in what a feature has, whatever it is: its row comes with Columns::look.
    void hold(py::object value) { owners.push_back(std::move(value)); }
    // Takes in the kinds of the arrays and tensors, all of which have no elements.
    void see_kinds_of_empty();
    // Holds copies of arrays and tensors whose elements do not lie side by side; before a look.
    void make_dense(const Interop& interop);
    std::int64_t held() const { return static_cast<std::int64_t>(owners.size()); }
    bool holds_more_than_seen() const { return owners.size() > rows.size(); }
    // The same with its row, in memory that is kept alive elsewhere; only where no value waits for a look.
    void add(const Row& row, std::uint32_t form, const Trailing& dimensions = {});
    // Numbers in memory that stand for a row or number of this form and kind: a float64 that stands for a float32 is
    // rounded here, because it may become a float64 again.
    void add_as(const Row& row, std::uint32_t form, Kind kind, const Trailing& dimensions = {});
    // The facts about the next row, of `length` tokens; see_deep: of one with dimensions, or in a column of those.
    void see(const Row& row, std::uint32_t form, std::int64_t length);
    void see_deep(const Row& row, std::uint32_t form, const Trailing& dimensions);
    Span<const std::int64_t> all_lengths() const { return span_of(lengths); }
    // See row_offsets.
    std::vector<std::int64_t> offsets(std::int64_t least = 0) const;
    // The shape of a row, the first dimension included; none for a single number.
    Trailing shape(std::size_t row) const;
    // Writes the numbers of a row that is a list or tuple, or has lists in it, whose shape this is.
    Status decode(std::size_t row, const Trailing& shape, Kind kind, char* out) const;
    // Moves the numbers of a row, as this kind, to memory of the column; not where they do not convert.
    void keep(Kind kind, Row* row);
};

// Where rows are is seen when everything the batch holds is at hand, and from then on nothing of the user's runs until
// they are copied: that is a known kind of batch. Where that cannot be had, see `invalidate`, rows are looked at once
// more before they are copied. Lists are always read live, with the length they have.
class Columns {
public:
    std::vector<Column> columns;

    const Column& at(std::size_t index) const { return columns.at(index); }

    void traverse(Visitor& visit) const {
        visit(interop_owner_);
        for (const Column& column : columns) {
            for (const py::object& owner : column.owners) {
                visit(owner);
            }
        }
    }

    // Looks at all that is held. Interop must outlive the columns.
    void look(const Interop& interop);
    // Keeps an Interop that Python holds. pybind11's own keep_alive ends the process where it has no memory.
    void keep_alive(const py::object& interop) { interop_owner_ = interop; }
    // To be called before anything of the user's may run, and before the GIL is given up.
    void invalidate() const { no_user_code_.reset(); }

    // Holds one value per row of a list or tuple, as a column more; false for anything else.
    bool hold_values(const py::object& values);
    // One value per row, each a list, tuple, array, tensor or number.
    void add_values(const py::object& values, const py::object& interop);
    // The value each feature has under `name`, an empty list for those that have none; skips: leaves these and None
    // out. Returns how many have one, -1 where a feature failed to tell; then, and for 0, no column is added.
    std::int64_t add_optional(const py::object& features, const py::handle& name, const Interop& interop, bool skips);
    // Rows that are slices of flat values, `values_size` tokens; offsets has count + 1 entries.
    void add_ragged(Address values, Kind kind, std::int64_t values_size, Address offsets, std::int64_t count,
                    const Trailing& trailing);

    // Row i becomes `lengths[i]` of its tokens, from starts[i] on. The rows must lie in memory that stays where it is.
    // Throws ValueError for others, and where a row has no such tokens.
    void cut(std::size_t index, Address starts, Address lengths);

    // What a decision about this batch can depend on, six bytes a column: forms, first form, kinds (two bytes), Lengths
    // and Trait. bounded: whether the width of the batch does not follow from its rows.
    std::string signature(std::size_t main, std::int64_t width, bool bounded) const;
    std::int64_t count(std::size_t index) const { return static_cast<std::int64_t>(at(index).rows.size()); }
    // The first row in which two columns differ in length, or -1.
    std::int64_t first_difference(std::size_t a, std::size_t b) const;

    // The writers write to memory of the caller; widths, starts and sizes are in tokens.
    Status pad(std::size_t index, Address out, Kind kind, std::int64_t width, Side side, const py::handle& value) const;
    Status flatten(std::size_t index, Address out, Kind kind, std::int64_t out_size) const;
    // Row i goes to out[start[i]].
    Status place(std::size_t index, Span<const std::int64_t> start, Address out, Kind kind,
                 std::int64_t out_size) const;
    Status numbers(std::size_t index, Address out, Kind kind) const;
    // Rows of any shapes to blocks of the output: element [a, b, ...] of row i to out[start[i] + a * steps[0] + ...].
    Status place_blocks(std::size_t index, Span<const std::int64_t> start, const Trailing& steps, Address out,
                        Kind kind, std::int64_t out_size) const;
    Status attention_mask(std::size_t index, Address out, Kind kind, std::int64_t width, Side side) const;

private:
    // Sees where the rows are, which is so for as long as `meanwhile` lives. Not ok where one is another row now.
    Status see_again(const Column& column, std::optional<NoUserCode>* meanwhile) const;
    Status copy(const Column& column, Span<const std::int64_t> start, Kind kind, Address out,
                std::int64_t out_size) const;

    py::object interop_owner_;
    const Interop* interop_ = nullptr;
    mutable std::optional<NoUserCode> no_user_code_;  // since the rows were seen
};

// One column per name from a list of features or TableRows, held for a look; false when a feature lacks a name or is no
// plain mapping, see PlainDicts. `names`: None to take the keys of the first feature, but for those of `without`.
bool collect_columns(const py::object& features, const py::object& names, const Interop& interop, py::tuple* keys,
                     Columns* columns, const py::dict& without = py::dict());

// The same of all columns of features whose values are lists or tuples of rows, one per choice: the first rows of each
// feature, as many as the first feature has in the column `main`, feature by feature. The values of the column `plain`
// are taken as they are. Returns how many, 0 when a feature has other names too, or a value has not that many rows.
std::int64_t collect_choices(const py::object& features, const py::object& plain, const py::object& main,
                             const Interop& interop, py::tuple* keys, Columns* columns);

}  // namespace quadrat
