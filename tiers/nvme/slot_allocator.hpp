// The space of one path of the NVMe tier: which slots of its data file are used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace cenote::nvme {

/// A row of bits whose lowest set one is found without a walk over all of them. Not thread-safe.
class bit_row {
 public:
  bit_row() = default;
  /// All set.
  explicit bit_row(std::uint64_t bits);

  [[nodiscard]] bool test(std::uint64_t bit) const noexcept { return (words_[bit / 64] >> (bit % 64) & 1) != 0; }
  void set(std::uint64_t bit) noexcept;
  void clear(std::uint64_t bit) noexcept;
  [[nodiscard]] std::optional<std::uint64_t> lowest() const noexcept;
  [[nodiscard]] std::uint64_t size() const noexcept { return bits_; }
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }

 private:
  std::vector<std::uint64_t> words_;
  std::vector<std::uint64_t> summary_;  ///< bit w: words_[w] is not zero
  std::uint64_t bits_ = 0;
  std::uint64_t count_ = 0;  ///< of set bits
};

/// Cuts [first_byte, end_byte) into extents; an extent belongs to one size class while any of its slots is used.
/// A slot larger than an extent takes adjacent extents for itself. Costs about a bit a slot. Not thread-safe.
///
///   first_byte                                                            end_byte
///   | class 64 KiB: ##.#.. | free | class 1 MiB: #. | one slot over two extents | rest, unused |
///
/// A size class is a number of bytes: a multiple of 4096, not 0.
class slot_allocator {
 public:
  slot_allocator(std::uint64_t first_byte, std::uint64_t end_byte, std::uint64_t extent_bytes);

  /// The offset of a free slot, bytes from the start of the file; the lowest of an extent, so that slots that are asked
  /// for in a row are neighbours. Nothing: the class has no free slot, and no extent is free (or not enough adjacent
  /// ones), or the size is no class.
  [[nodiscard]] std::optional<std::uint64_t> allocate(std::uint64_t slot_bytes);
  /// Gives back what allocate() or claim() gave. An extent whose last slot goes is free for any class.
  void release(std::uint64_t offset);
  /// Takes a given slot, at a warm start. False: part of it is taken, or it is out of range, or where no slot of this
  /// class can be.
  [[nodiscard]] bool claim(std::uint64_t offset, std::uint64_t slot_bytes);

  /// How many allocate() would give in a row.
  [[nodiscard]] std::uint64_t free_slots(std::uint64_t slot_bytes) const;
  /// Bytes of all used slots.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  /// Bytes of all extents.
  [[nodiscard]] std::uint64_t capacity_bytes() const noexcept { return extents_.size() * extent_bytes_; }

  /// Offsets of the used slots of the extent that holds `offset`, lowest first.
  [[nodiscard]] std::vector<std::uint64_t> slots_of_extent(std::uint64_t offset) const;
  /// First byte of the extent with the fewest used slots, then the fewest used bytes, of all that belong to a class
  /// other than this one. Walks over the extents.
  [[nodiscard]] std::optional<std::uint64_t> emptiest_extent(std::uint64_t except_slot_bytes) const;

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  struct extent {
    std::uint64_t slot_bytes = 0;  ///< 0: free
    bit_row free;                  ///< of a class with slots that fit in an extent
    std::uint32_t first = 0;       ///< of a slot over several extents: where it starts
    std::uint32_t previous = none;
    std::uint32_t next = none;
  };
  struct size_class {
    std::uint32_t head = none;  ///< extents of the class with room; the first is filled first
    std::uint32_t tail = none;
    std::uint64_t free = 0;  ///< slots in them
  };

  [[nodiscard]] bool is_class(std::uint64_t slot_bytes) const noexcept;
  [[nodiscard]] bool is_large(std::uint64_t slot_bytes) const noexcept { return slot_bytes > extent_bytes_; }
  [[nodiscard]] std::uint64_t extents_for(std::uint64_t slot_bytes) const noexcept;
  [[nodiscard]] std::uint64_t first_byte_of(std::uint64_t index) const noexcept;
  [[nodiscard]] std::optional<std::uint32_t> extent_at(std::uint64_t offset) const noexcept;
  [[nodiscard]] std::uint64_t used_slots(const extent& range) const noexcept;
  [[nodiscard]] std::optional<std::uint32_t> free_run(std::uint64_t count) const noexcept;
  void take_run(std::uint32_t first, std::uint64_t slot_bytes);
  void open_extent(std::uint32_t index, std::uint64_t slot_bytes);
  void close_extent(std::uint32_t index);
  void take_slot(std::uint32_t index, std::uint64_t slot);
  void link(size_class& bin, std::uint32_t index, bool at_front);
  void unlink(size_class& bin, std::uint32_t index);

  std::uint64_t first_byte_;
  std::uint64_t extent_bytes_;
  std::vector<extent> extents_;
  bit_row free_extents_;
  std::map<std::uint64_t, size_class> classes_;  ///< by slot bytes
  std::uint64_t used_bytes_ = 0;
};

}  // namespace cenote::nvme
