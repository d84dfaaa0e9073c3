// The capacities that `cenote optimize` tries, as its option has them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.hpp"

namespace cenote::optimize {

/// A list of blocks (0 among them) and of ranges, as "0,500,1k:256k:2x"; also bytes ("2GiB") where `block_bytes` is not
/// 0. At most 1,000 of them. Errors: invalid_argument.
[[nodiscard]] result<std::vector<std::uint32_t>> parse_points(std::string_view text, std::uint64_t block_bytes = 0);

/// Eight that double up to `distinct`, fewer where that is small.
[[nodiscard]] std::vector<std::uint32_t> doubled_points(std::uint32_t distinct);

}  // namespace cenote::optimize
