#include "core/random_number.hpp"

#include <sys/random.h>

namespace cenote {

void fill_randomly(std::span<std::byte> bytes) noexcept {
  // So few bytes come at once, if no signal comes in between.
  while (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
  }
}

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  while (number == 0) fill_randomly(std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

}  // namespace cenote
