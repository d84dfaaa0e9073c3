// Measures all candidates for copies and checksums, and checks the choice of a node's short measurement.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "commands/bench/support.hpp"
#include "core/checksum.hpp"
#include "core/copy_measurement.hpp"
#include "core/copy_routines.hpp"
#include "core/running_checksum.hpp"

namespace cenote::bench::copies_bench {

namespace {

constexpr std::size_t set_bytes = 256 * MiB;  // of each side: more than a core's share of any cache
constexpr std::size_t warm_bytes = 16 * MiB;  // until caches hold the candidate's own lines
constexpr std::size_t timed_bytes = 48 * MiB;
constexpr std::size_t call_bytes = 512 * KiB;
constexpr unsigned default_rounds = 15;
constexpr double timed_gib = static_cast<double>(timed_bytes) / static_cast<double>(GiB);

/// Both sides of a copy, larger than caches.
class copied_sets {
 public:
  copied_sets(const measured_memory& source, const measured_memory& target) noexcept
      : source_(source.bytes()), target_(target.bytes()) {}

  double seconds(copy_case kind, std::uint8_t candidate) {
    walk(kind, candidate, warm_bytes);
    const stopwatch watch;
    walk(kind, candidate, timed_bytes);
    return watch.seconds();
  }

 private:
  void walk(copy_case kind, std::uint8_t candidate, std::size_t bytes) {
    const auto sum = std::ranges::find(checksum_variants(), candidate, &checksum_variant::number);
    const copy_function run = copy_routine_of(candidate).run;
    volatile std::uint64_t sums = 0;  // or nothing would be computed
    for (std::size_t copied = 0; copied < bytes; copied += call_bytes, next_ = (next_ + call_bytes) % set_bytes) {
      const auto source = std::span<const std::byte>(source_).subspan(next_, call_bytes);
      std::byte* const target = target_.data() + next_;
      if (kind == copy_case::checksum) {
        sums = sums ^ sum->take(source.data(), source.size(), 0);
      } else if (kind == copy_case::hashed_copy) {
        running_checksum().copy_by(run, target, source);
      } else {
        run(target, source.data(), source.size());
      }
    }
  }

  std::span<std::byte> source_;
  std::span<std::byte> target_;
  std::size_t next_ = 0;
};

struct timed_candidate {
  std::uint8_t number = 0;
  samples times{};
};

std::vector<timed_candidate> all_candidates(copy_case kind) {
  std::vector<timed_candidate> all;
  if (kind == copy_case::checksum) {
    for (const checksum_variant& each : checksum_variants()) all.push_back({each.number});
  } else {
    for (const copy_routine& each : copy_routines()) all.push_back({each.number});
  }
  return all;
}

/// Reports all candidates beside the first one, memcpy or the narrowest checksum, and the chosen one beside the best.
void add_figures(copy_case kind, const std::vector<timed_candidate>& all, const copy_decision& decision, report& out) {
  const auto name = [&](const timed_candidate& each) { return name_of_candidate(kind, each.number); };
  for (const timed_candidate& each : all) {
    const std::string mark = each.number == decision.number ? " (used)" : "";
    out.add(rate_figure("copies", fmt::format("{}: {}{}", name_of(kind), name(each), mark), each.times,
                        all.front().times, timed_gib, "GiB/s"));
  }
  const auto chosen = std::ranges::find(all, decision.number, &timed_candidate::number);
  const auto best = std::ranges::min_element(all, {}, [](const timed_candidate& each) { return each.times.median(); });
  out.add(rate_figure("copies", fmt::format("{}: used, beside the best", name_of(kind)), chosen->times, best->times,
                      timed_gib, "GiB/s", {bound::kind::ratio_at_least, timed_choice::good_enough}));
}

result<void> measure(copy_case kind, copied_sets sets, const copy_decision& decision, unsigned rounds, report& out) {
  std::vector<timed_candidate> all = all_candidates(kind);
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    for (std::size_t i = 0; i < all.size(); ++i) {
      timed_candidate& each = all[(i + round) % all.size()];
      const double seconds = sets.seconds(kind, each.number);
      if (round != 0) each.times.add(seconds);  // the first one only warms up
    }
  }
  add_figures(kind, all, decision, out);
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  machine_decisions decisions;  // as of a node without a file of them
  if (auto round = measure_round(decisions); !round) return std::unexpected(round.error());
  auto process = measured_memory::make(measured_memory::kind::process, set_bytes);
  auto small = measured_memory::make(measured_memory::kind::shared_small, set_bytes);
  if (!process) return std::unexpected(process.error());
  if (!small) return std::unexpected(small.error());
  const auto huge = measured_memory::make(measured_memory::kind::shared_huge, set_bytes);
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  struct row {
    copy_case kind;
    const measured_memory* source;
    const measured_memory* target;
  };
  const measured_memory* const pages = huge ? &*huge : nullptr;
  for (const auto& [kind, source, target] :
       {row{copy_case::read, &*small, &*process}, row{copy_case::write, &*process, &*small},
        row{copy_case::read_huge, pages, &*process}, row{copy_case::write_huge, &*process, pages},
        row{copy_case::checksum, &*process, &*small}, row{copy_case::hashed_copy, &*process, &*small}}) {
    const copy_decision decision = decisions.decision_of(kind);
    if (source == nullptr || target == nullptr || decision.number == 0) continue;
    if (auto ok = measure(kind, {*source, *target}, decision, rounds, out); !ok) return ok;
  }
  return {};
}

}  // namespace cenote::bench::copies_bench
