#include "core/units.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>

namespace cenote {
namespace {

struct unit {
  std::string_view name;
  std::uint64_t factor;
};

constexpr std::uint64_t kilo = 1000;
constexpr std::uint64_t kibi = 1024;

// The binary units come first, smallest to largest: formatting uses that prefix of the table.
constexpr std::array byte_units{
    unit{"B", 1},
    unit{"KiB", kibi},
    unit{"MiB", kibi* kibi},
    unit{"GiB", kibi* kibi* kibi},
    unit{"TiB", kibi* kibi* kibi* kibi},
    unit{"PiB", kibi* kibi* kibi* kibi* kibi},
    unit{"kB", kilo},
    unit{"KB", kilo},
    unit{"MB", kilo* kilo},
    unit{"GB", kilo* kilo* kilo},
    unit{"TB", kilo* kilo* kilo* kilo},
    unit{"PB", kilo* kilo* kilo* kilo* kilo},
};
constexpr std::span<const unit> binary_units(byte_units.data(), 6);

constexpr std::uint64_t second = kilo * kilo * kilo;
constexpr std::array duration_units{
    unit{"ns", 1},          unit{"us", kilo},         unit{"ms", kilo* kilo},           unit{"s", second},
    unit{"m", 60 * second}, unit{"h", 3600 * second}, unit{"d", 24ULL * 3600 * second},
};

/// What parse_measure needs to know of sizes or of durations.
struct measure {
  std::string_view noun;
  std::string_view example;
  std::string_view unit_names;
  std::span<const unit> units;
  std::uint64_t limit;
  bool bare_number;  // a number without a unit counts in the first unit
};

constexpr measure sizes{"size",
                        "4GiB",
                        "B, KiB, MiB, GiB, TiB, PiB (powers of 1024) or kB, MB, GB, TB, PB (powers of 1000)",
                        byte_units,
                        std::numeric_limits<std::uint64_t>::max(),
                        true};
constexpr measure durations{
    "duration", "250ms", "ns, us, ms, s, m, h or d", duration_units, std::numeric_limits<std::int64_t>::max(), false};

/// "whole.fraction unit" before scaling; the fraction is `fraction / fraction_scale`.
struct quantity {
  std::uint64_t whole = 0;
  std::uint64_t fraction = 0;
  std::uint64_t fraction_scale = 1;
  std::string_view unit;
};

constexpr std::size_t max_fraction_digits = 9;

std::string quoted(std::string_view text) {
  return "`" + std::string(text) + "`";
}

std::string such_as(const measure& kind) {
  return "; write a " + std::string(kind.noun) + " such as \"" + std::string(kind.example) + "\"";
}

std::unexpected<error> too_large(std::string_view text, const measure& kind) {
  return fail(error_code::invalid_argument, quoted(text) + " is too large for a " + std::string(kind.noun));
}

bool is_space(char c) {
  return c == ' ' || c == '\t';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view take_digits(std::string_view& text) {
  const auto end = std::ranges::find_if_not(text, is_digit);
  const auto digits = text.substr(0, static_cast<std::size_t>(end - text.begin()));
  text.remove_prefix(digits.size());
  return digits;
}

result<quantity> split(std::string_view text, const measure& kind) {
  auto rest = text;
  const auto whole = take_digits(rest);
  quantity parsed;
  if (whole.empty())
    return fail(error_code::invalid_argument, quoted(text) + " is not a number with a unit" + such_as(kind));
  if (std::from_chars(whole.data(), whole.data() + whole.size(), parsed.whole).ec != std::errc{}) {
    return too_large(text, kind);
  }
  if (rest.starts_with('.')) {
    rest.remove_prefix(1);
    const auto digits = take_digits(rest);
    if (digits.empty() || digits.size() > max_fraction_digits) {
      return fail(error_code::invalid_argument,
                  quoted(text) + " needs one to nine digits after the point" + such_as(kind));
    }
    std::from_chars(digits.data(), digits.data() + digits.size(), parsed.fraction);
    for (std::size_t i = 0; i < digits.size(); ++i) parsed.fraction_scale *= 10;
  }
  parsed.unit = trimmed(rest);
  return parsed;
}

bool same_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

/// The unit that someone who wrote `name` most likely meant: another case, or the unit without its "iB".
std::optional<std::string_view> likely_unit(std::string_view name, const measure& kind) {
  for (const auto& candidate : kind.units) {
    if (same_ignoring_case(candidate.name, name)) return candidate.name;
  }
  for (const auto& candidate : kind.units) {
    if (!name.empty() && candidate.name.size() > name.size() &&
        same_ignoring_case(candidate.name.substr(0, name.size()), name)) {
      return candidate.name;
    }
  }
  return std::nullopt;
}

result<std::uint64_t> unit_factor(const quantity& parsed, std::string_view text, const measure& kind) {
  if (parsed.unit.empty()) {
    const bool zero = parsed.whole == 0 && parsed.fraction == 0;
    if (zero || kind.bare_number) return 1;
    return fail(error_code::invalid_argument,
                quoted(text) + " has no unit; write it with one of " + std::string(kind.unit_names));
  }
  const auto found = std::ranges::find(kind.units, parsed.unit, &unit::name);
  if (found != kind.units.end()) return found->factor;
  std::string message = "unknown unit " + quoted(parsed.unit) + " in " + quoted(text);
  if (const auto meant = likely_unit(parsed.unit, kind)) message += "; did you mean " + quoted(*meant) + "?";
  return fail(error_code::invalid_argument,
              message + " Units of a " + std::string(kind.noun) + " are " + std::string(kind.unit_names));
}

/// whole * factor + fraction * factor / scale without an intermediate overflow: the fraction is below its
/// scale of at most 10^9, so both of its products fit.
std::optional<std::uint64_t> scaled(const quantity& parsed, std::uint64_t factor, std::uint64_t limit) {
  if (parsed.whole > limit / factor) return std::nullopt;
  const auto fraction = parsed.fraction * (factor / parsed.fraction_scale) +
                        parsed.fraction * (factor % parsed.fraction_scale) / parsed.fraction_scale;
  const auto whole = parsed.whole * factor;
  if (fraction > limit - whole) return std::nullopt;
  return whole + fraction;
}

result<std::uint64_t> parse_measure(std::string_view written, const measure& kind) {
  const auto text = trimmed(written);
  if (text.empty()) return fail(error_code::invalid_argument, "the value is empty" + such_as(kind));
  if (text.front() == '-') return fail(error_code::invalid_argument, quoted(text) + " is negative" + such_as(kind));
  const auto parsed = split(text, kind);
  if (!parsed) return std::unexpected(parsed.error());
  const auto factor = unit_factor(*parsed, text, kind);
  if (!factor) return std::unexpected(factor.error());
  if (*factor == 1 && parsed->fraction != 0) {
    return fail(error_code::invalid_argument, quoted(text) + " is a fraction of the smallest unit" + such_as(kind));
  }
  const auto value = scaled(*parsed, *factor, kind.limit);
  if (!value) return too_large(text, kind);
  if (*value == 0 && parsed->fraction != 0) {
    return fail(error_code::invalid_argument, quoted(text) + " is less than the smallest unit" + such_as(kind));
  }
  return *value;
}

std::string exact(std::uint64_t value, std::span<const unit> units) {
  auto best = units.front();
  for (const auto& candidate : units) {
    if (value % candidate.factor == 0) best = candidate;
  }
  return std::to_string(value / best.factor) + std::string(best.name);
}

std::string approximate(std::uint64_t value, std::span<const unit> units) {
  auto best = units.front();
  for (const auto& candidate : units) {
    if (value >= candidate.factor) best = candidate;
  }
  if (best.factor == 1) return std::to_string(value) + " " + std::string(best.name);
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%.1f ", static_cast<double>(value) / static_cast<double>(best.factor));
  return number.data() + std::string(best.name);
}

/// The magnitude of a duration, correct for the most negative one too.
std::uint64_t magnitude(std::chrono::nanoseconds duration) {
  const auto bits = static_cast<std::uint64_t>(duration.count());
  return duration.count() < 0 ? 0 - bits : bits;
}

std::string sign(std::chrono::nanoseconds duration) {
  return duration.count() < 0 ? "-" : "";
}

}  // namespace

result<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_measure(text, sizes);
}

result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto count = parse_measure(text, durations);
  if (!count) return std::unexpected(count.error());
  return std::chrono::nanoseconds(static_cast<std::int64_t>(*count));
}

std::string format_bytes(std::uint64_t bytes) {
  return bytes == 0 ? "0" : exact(bytes, binary_units);
}

std::string format_duration(std::chrono::nanoseconds duration) {
  return duration.count() == 0 ? "0s" : sign(duration) + exact(magnitude(duration), duration_units);
}

std::string approximate_bytes(std::uint64_t bytes) {
  return approximate(bytes, binary_units);
}

std::string approximate_duration(std::chrono::nanoseconds duration) {
  return duration.count() == 0 ? "0 s" : sign(duration) + approximate(magnitude(duration), duration_units);
}

}  // namespace cenote
