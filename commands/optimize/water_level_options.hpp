// --water-levels: room that tiers make ahead of need.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "commands/optimize/tier_options.hpp"
#include "core/error.hpp"
#include "simulation/water_levels.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

/// "97%:94%", or "80%:75%:100" with a batch. Refused (invalid_argument): shares that are not above 0 and below 100 %,
/// or a low one above the high one. Empty: none.
[[nodiscard]] result<simulation::water_levels> parse_water_levels(std::string_view text);

/// By the tier's name.
using tier_levels = std::map<std::string, simulation::water_levels, std::less<>>;
/// "dram=97%:94%,nvme=95%:90%". Errors as above.
[[nodiscard]] result<tier_levels> parse_tier_levels(std::string_view text);

/// Adds --water-levels of tiers.
void add_tier_levels(CLI::App& command, std::string& text);
/// Gives the tiers theirs, as `text` has them by name. Refused (invalid_argument) beside the above: names of none,
/// tiers without room, and belady.
[[nodiscard]] result<void> take_tier_levels(std::string_view text, std::span<tier_choice> tiers);

/// "97%:94%", or "80%:75%:100" with a batch.
[[nodiscard]] std::string text_of_levels(const simulation::water_levels& levels);

}  // namespace cenote::optimize
