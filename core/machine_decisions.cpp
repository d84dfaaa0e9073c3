#include "core/machine_decisions.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/copy_routines.hpp"
#include "core/machine.hpp"

namespace cenote {

namespace {

constexpr std::uint64_t decisions_magic = 0x0059504f434e4543;  // "CENCOPY"
constexpr std::uint32_t decisions_version = 1;
constexpr std::size_t most_file_bytes = 64U << 10;
constexpr std::size_t candidate_numbers = 64;
constexpr std::uint32_t never_bytes = std::numeric_limits<std::uint32_t>::max();

/// The least size of a place; behind the last one: never.
std::uint32_t least_at(std::size_t place) noexcept {
  return place < measured_sizes.size() ? measured_sizes[place] : never_bytes;
}

std::size_t place_of(std::uint32_t least_bytes) noexcept {
  const auto* const found = std::ranges::find(measured_sizes, least_bytes);
  return static_cast<std::size_t>(found - measured_sizes.begin());
}

std::vector<double> rates_by_number(std::span<const candidate_rate> rates) {
  std::vector<double> all(candidate_numbers, 0);
  for (const candidate_rate& each : rates) {
    if (each.number < all.size()) all[each.number] = each.bytes_per_s;
  }
  return all;
}

/// Scores each least size by its worst ratio to the better of both ways over all sizes.
std::vector<double> scores_of(std::span<const size_rate> rates) {
  std::vector<double> scores(measured_sizes.size() + 1, 1);
  for (std::size_t place = 0; place < scores.size(); ++place) {
    for (const size_rate& each : rates) {
      const double rate = each.bytes >= least_at(place) ? each.routine_rate : each.memcpy_rate;
      scores[place] = std::min(scores[place], rate / std::max(each.routine_rate, each.memcpy_rate));
    }
  }
  return scores;
}

bool is_rate(double value) noexcept {
  return std::isfinite(value) && value > 0;
}

/// Reads a case of a file; nothing where it is malformed.
std::optional<copy_decision> read_decision(byte_reader& input) {
  copy_decision decision;
  decision.number = input.get<std::uint8_t>();
  decision.least_bytes = input.get<std::uint32_t>();
  const auto count = input.get<std::uint32_t>();
  if (count > candidate_numbers || decision.number >= candidate_numbers) return std::nullopt;
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto candidate = input.get<std::uint8_t>();
    decision.rates.push_back({candidate, std::bit_cast<double>(input.get<std::uint64_t>())});
  }
  const bool is_sane = std::ranges::all_of(decision.rates, [](const candidate_rate& each) {
    return each.number < candidate_numbers && is_rate(each.bytes_per_s);
  });
  const bool is_known = decision.number == 0 || decision.rate_of(decision.number) > 0;
  return is_sane && is_known ? std::optional(std::move(decision)) : std::nullopt;
}

}  // namespace

std::string_view name_of(copy_case kind) noexcept {
  switch (kind) {
    case copy_case::read: return "read";
    case copy_case::write: return "write";
    case copy_case::read_huge: return "read_huge";
    case copy_case::write_huge: return "write_huge";
    case copy_case::checksum: return "checksum";
    case copy_case::hashed_copy: return "hashed_copy";
  }
  return "";
}

std::string name_of_candidate(copy_case kind, std::uint8_t number) {
  if (kind != copy_case::checksum) return copy_routine_of(number).name;
  const auto all = checksum_variants();
  const auto found = std::ranges::find(all, number, &checksum_variant::number);
  return std::string(found == all.end() ? all.back().name : found->name);
}

double copy_decision::rate_of(std::uint8_t candidate) const noexcept {
  const auto found = std::ranges::find(rates, candidate, &candidate_rate::number);
  return found == rates.end() ? 0 : found->bytes_per_s;
}

double copy_decision::best_rate() const noexcept {
  double best = 0;
  for (const candidate_rate& each : rates) best = std::max(best, each.bytes_per_s);
  return best;
}

bool machine_decisions::judge(copy_case kind, std::vector<candidate_rate> rates) {
  case_state& state = state_of(kind);
  const bool is_new = state.routine.judge(rates_by_number(rates));
  if (is_new) state.least = {};
  state.rates = std::move(rates);
  return is_new;
}

bool machine_decisions::judge_sizes(copy_case kind, std::span<const size_rate> rates) {
  const bool is_whole = std::ranges::all_of(
      rates, [](const size_rate& each) { return is_rate(each.routine_rate) && is_rate(each.memcpy_rate); });
  return is_whole && state_of(kind).least.judge(scores_of(rates));
}

copy_decision machine_decisions::decision_of(copy_case kind) const {
  const case_state& state = state_of(kind);
  copy_decision decision{.number = static_cast<std::uint8_t>(state.routine.candidate().value_or(0)),
                         .rates = state.rates};
  if (const auto place = state.least.candidate()) decision.least_bytes = least_at(*place);
  return decision;
}

machine_choice machine_decisions::choice(page_kind pages) const {
  const auto copy = [&](copy_case small, copy_case huge) {
    const bool takes_huge = pages == page_kind::huge && state_of(huge).routine.candidate().has_value();
    const copy_decision decision = decision_of(takes_huge ? huge : small);
    return copy_choice{decision.number, decision.least_bytes};
  };
  return {.copies = {copy(copy_case::read, copy_case::read_huge), copy(copy_case::write, copy_case::write_huge)},
          .hashed_copy = decision_of(copy_case::hashed_copy).number,
          .checksum = decision_of(copy_case::checksum).number};
}

bool machine_decisions::is_measured() const noexcept {
  return std::ranges::any_of(cases_, [](const case_state& each) { return each.routine.candidate().has_value(); });
}

bool machine_decisions::is_in_doubt() const noexcept {
  return std::ranges::any_of(
      cases_, [](const case_state& each) { return each.routine.is_in_doubt() || each.least.is_in_doubt(); });
}

// ---------------------------------------------------------------------------------------------- the file

std::string machine_identity(const std::filesystem::path& root) {
  constexpr std::array<std::string_view, 9> keys = {"vendor_id",  "cpu family",  "model",
                                                    "model name", "stepping",    "CPU implementer",
                                                    "CPU part",   "CPU variant", "CPU revision"};
  std::string identity;
  for (const auto& [name, value] : read_processor_fields(root)) {
    if (std::ranges::find(keys, name) != keys.end()) identity.append(name).append("\t: ").append(value) += '\n';
  }
  utsname kernel{};
  ::uname(&kernel);
  identity += std::string(kernel.sysname) + ' ' + kernel.release + ' ' + kernel.machine + '\n';
  for (const copy_routine& each : copy_routines()) identity += each.name + ';';
  for (const checksum_variant& each : checksum_variants()) identity += std::string(each.name) + ';';
  return identity;
}

std::vector<std::byte> encode(const machine_decisions& decisions, std::string_view machine) {
  byte_writer out;
  out.put(decisions_magic);
  out.put(decisions_version);
  out.put_text(machine);
  out.put(static_cast<std::uint32_t>(copy_case_count));
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const copy_decision each = decisions.decision_of(static_cast<copy_case>(i));
    out.put(each.number);
    out.put(each.least_bytes);
    out.put(static_cast<std::uint32_t>(each.rates.size()));
    for (const candidate_rate& one : each.rates) {
      out.put(one.number);
      out.put(std::bit_cast<std::uint64_t>(one.bytes_per_s));
    }
  }
  out.put(checksum_of(out.bytes()));
  return std::move(out).take();
}

result<machine_decisions> decode_decisions(std::span<const std::byte> bytes, std::string_view machine) {
  const auto malformed = [] { return fail(error_code::malformed, "no file of a machine's decisions"); };
  if (bytes.size() < sizeof(std::uint64_t) || bytes.size() > most_file_bytes) return malformed();
  byte_reader sum(bytes.last(sizeof(std::uint64_t)));
  const auto content = bytes.first(bytes.size() - sizeof(std::uint64_t));
  byte_reader input(content);
  const bool is_one = input.get<std::uint64_t>() == decisions_magic && sum.get<std::uint64_t>() == checksum_of(content);
  if (!is_one) return malformed();
  if (input.get<std::uint32_t>() != decisions_version) return fail(error_code::unsupported, "of another version");
  if (input.get_text() != machine) return fail(error_code::unsupported, "of another machine, kernel or build");
  if (input.get<std::uint32_t>() != copy_case_count) return malformed();
  machine_decisions decisions;
  for (auto& each : decisions.cases_) {
    const auto decision = read_decision(input);
    if (!decision) return malformed();
    if (decision->number != 0) each.routine = timed_choice(decision->number);
    if (decision->least_bytes != 0) each.least = timed_choice(place_of(decision->least_bytes));
    each.rates = decision->rates;
  }
  if (!input.ok() || input.remaining() != 0) return malformed();
  return decisions;
}

std::filesystem::path decisions_file(const std::filesystem::path& runtime_dir) {
  return runtime_dir / "copies";
}

result<machine_decisions> load_decisions(const std::filesystem::path& file, std::string_view machine) {
  std::ifstream input(file, std::ios::binary);
  if (!input) return fail_errno("open", file.native());
  std::vector<char> bytes(most_file_bytes + 1);
  input.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const auto size = static_cast<std::size_t>(input.gcount());
  return decode_decisions(std::as_bytes(std::span(bytes).first(size)), machine);
}

result<void> save_decisions(const std::filesystem::path& file, const machine_decisions& decisions,
                            std::string_view machine) {
  const std::filesystem::path fresh = file.native() + ".new";
  const auto bytes = encode(decisions, machine);
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) return fail_errno("write", fresh.native());
  std::error_code why;
  std::filesystem::rename(fresh, file, why);
  if (why) return fail(error_code::system, "rename " + fresh.native() + ": " + why.message());
  return {};
}

}  // namespace cenote
