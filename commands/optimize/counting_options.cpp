#include "commands/optimize/counting_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <string_view>

#include "commands/optimize/duration_option.hpp"
#include "commands/optimize/refusal.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

constexpr double most_warm_up = 90;  // percent: something must be left to count
constexpr std::string_view insertion_name = "insertion";

/// "10%" as "10".
std::string percent_number(std::string text) {
  if (!text.ends_with('%')) throw CLI::ValidationError(text + " is no share; right is a number with %, as in 10%");
  text.pop_back();
  return text;
}

}  // namespace

void counting_options::add_to(CLI::App& command) {
  command.add_option("--ttl", ttl, "Time after which blocks go though there is room, as in 10m");
  command.add_option("--ttl-from", ttl_from, "The event from which --ttl counts: use, the last one, or insertion")
      ->check(CLI::IsMember({"use", "insertion"}));
  command
      .add_option("--warm-up", warm_up,
                  "Share of the requests, the first ones, that fill the cache and are left out of the sums, as in 10%")
      ->transform(percent_number)
      ->check(CLI::Range(0.0, most_warm_up));
}

result<simulation::lifetime> counting_options::lifetime() const {
  if (ttl.empty() && !ttl_from.empty())
    return refuse("--ttl-from: it says from when a time to live counts, which --ttl gives, as in --ttl 10m");
  if (ttl.empty()) return simulation::lifetime{};
  const auto ms = parse_milliseconds("--ttl", ttl, "10m");
  if (!ms) return std::unexpected(ms.error());
  const bool is_insertion = ttl_from == insertion_name;
  return simulation::lifetime{
      .ms = *ms, .start = is_insertion ? simulation::lifetime_start::insertion : simulation::lifetime_start::last_use};
}

result<simulation::serving_rules> counting_options::rules() const {
  const auto life = lifetime();
  if (!life) return std::unexpected(life.error());
  return simulation::serving_rules{.warm_up = warm_up / 100, .lifetime = *life};
}

result<void> check_lifetime(const simulation::lifetime& lifetime, const simulation::trace& requests) {
  if (lifetime.ms == 0 || requests.has_times()) return {};
  return refuse("--ttl: the requests of this trace have no times, or all the same one");
}

void add_lifetime(nlohmann::ordered_json& object, const simulation::lifetime& lifetime) {
  if (lifetime.ms == 0) return;
  object["ttl_ms"] = lifetime.ms;
  object["ttl_from"] = lifetime.start == simulation::lifetime_start::insertion ? insertion_name : "use";
}

std::string text_of_lifetime(const simulation::lifetime& lifetime) {
  if (lifetime.ms == 0) return "";
  const bool is_insertion = lifetime.start == simulation::lifetime_start::insertion;
  return fmt::format("Blocks go {} after their {}\n", format_duration(std::chrono::milliseconds(lifetime.ms)),
                     is_insertion ? insertion_name : "last use");
}

std::string text_of_warm_up(std::size_t requests, std::uint64_t tokens) {
  if (requests == 0) return "";
  return fmt::format("The first {} requests fill the cache and are left out of the sums: {} tokens count\n", requests,
                     tokens);
}

}  // namespace cenote::optimize
