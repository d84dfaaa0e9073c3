#include "commands/optimize/capacities.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "commands/replay/options.hpp"

namespace cenote::optimize {

namespace {

constexpr unsigned doublings = 8;
constexpr std::size_t most_points = 1000;

std::unexpected<error> refuse_zero(std::string_view range) {
  return fail(error_code::invalid_argument,
              fmt::format("--capacities: `{0}` begins with 0; right is `0,` and a range that begins higher, as in "
                          "0,1k:256k:2x",
                          range));
}

}  // namespace

result<std::vector<std::uint32_t>> parse_points(std::string_view text, std::uint64_t block_bytes) {
  std::vector<std::uint32_t> all;
  if (text.empty()) return all;
  for (const std::string_view part : split(text, ',')) {
    if (part.starts_with("0:")) return refuse_zero(part);
    const auto some = parse_capacities(part, block_bytes, 0);
    if (!some) return std::unexpected(some.error().in("--capacities"));
    all.insert(all.end(), some->begin(), some->end());
    if (all.size() > most_points) {
      return fail(error_code::invalid_argument, fmt::format("--capacities: over {} of them", most_points));
    }
  }
  return all;
}

std::vector<std::uint32_t> doubled_points(std::uint32_t distinct) {
  std::vector<std::uint32_t> all;
  for (unsigned i = doublings; i-- > 0;) {
    const std::uint32_t capacity = std::max(1U, distinct >> i);
    if (all.empty() || capacity > all.back()) all.push_back(capacity);
  }
  return all;
}

}  // namespace cenote::optimize
