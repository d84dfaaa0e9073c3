#include "core/bulk_copy.hpp"

#include <cstring>

#include "core/copy_routines.hpp"

namespace cenote {

void bulk_copy_piece(std::byte* target, const std::byte* source, std::size_t bytes, copy_direction direction) noexcept {
  copy_routine_of(routine_in(word_in_use(static_cast<std::size_t>(direction)))).run(target, source, bytes);
}

void bulk_copy(std::byte* target, const std::byte* source, std::size_t bytes, copy_direction direction) noexcept {
  const std::uint64_t word = word_in_use(static_cast<std::size_t>(direction));
  if (bytes < least_bytes_in(word)) {
    std::memcpy(target, source, bytes);
  } else {
    copy_routine_of(routine_in(word)).run(target, source, bytes);
  }
}

}  // namespace cenote
