#include "core/random_number.hpp"

#include <sys/random.h>

namespace cenote {

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  while (number == 0) (void)!::getrandom(&number, sizeof number, 0);
  return number;
}

}  // namespace cenote
