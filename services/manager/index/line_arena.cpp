#include "services/manager/index/line_arena.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "core/huge_vector.hpp"

namespace cenote::manager {

namespace {

constexpr std::align_val_t line_alignment{64};

bool is_mapped(std::size_t bytes) noexcept {
  return bytes >= huge_pages::size;
}

}  // namespace

void line_arena::arena_piece_deleter::operator()(std::byte* memory) const noexcept {
  if (is_mapped(bytes)) {
    huge_pages::unmap(memory, bytes);
  } else {
    ::operator delete(memory, line_alignment);
  }
}

line_arena::arena_piece line_arena::make_piece(std::size_t bytes) {
  void* const memory = is_mapped(bytes) ? huge_pages::map(bytes) : ::operator new(bytes, line_alignment);
  return arena_piece(static_cast<std::byte*>(memory), arena_piece_deleter{bytes});
}

void* line_arena::allocate(std::size_t bytes) {
  if (bytes > rest_) {
    // A sixteenth of all pieces so far, a power of two; what is larger gets a piece of its own, in whole huge pages.
    std::size_t size = std::clamp(std::bit_floor(bytes_ / 16), least_piece, huge_pages::size);
    const bool is_whole = bytes > size / 2;
    if (is_whole)
      size = is_mapped(bytes) ? (bytes + huge_pages::size - 1) / huge_pages::size * huge_pages::size : bytes;
    if (pieces_.size() == pieces_.capacity()) pieces_.reserve(std::max<std::size_t>(8, 2 * pieces_.size()));
    pieces_.push_back(make_piece(size));
    bytes_ += size;
    if (is_whole) return pieces_.back().get();
    place_ = pieces_.back().get();
    rest_ = size;
  }
  rest_ -= bytes;
  return std::exchange(place_, place_ + bytes);
}

}  // namespace cenote::manager
