// Readers beside each other, and one beside a writer.
#include <atomic>
#include <thread>

#include "commands/bench/manager/reader_load.hpp"
#include "commands/bench/manager/rows.hpp"

namespace cenote::bench {

namespace {

constexpr unsigned reader_rounds = 7;
constexpr double round_seconds = 0.3;
constexpr std::uint64_t first_chain = 2'000'000'000;  // beyond those of sessions

double rate_of_two(const reader_load& load) {
  double first = 0;
  std::thread other([&] { first = load.rate(round_seconds); });
  const double second = load.rate(round_seconds);
  other.join();
  return first + second;
}

/// Sessions of 1,000 new keys at full rate meanwhile; `chain` is the next one.
result<double> rate_beside_sessions(private_manager& manager, const reader_load& load, std::uint64_t& chain) {
  std::atomic<bool> is_done{false};
  double rate = 0;
  std::thread reader([&] {
    rate = load.rate(round_seconds);
    is_done.store(true);
  });
  result<void> written;
  while (written && !is_done.load()) written = manager.write_chain(chain_kind::one_spec, chain++);
  reader.join();
  return written ? result<double>(rate) : std::unexpected(written.error());
}

}  // namespace

result<void> run_reader_rows(const row_context& context) {
  const reader_load load(context.manager, context.chains);
  std::uint64_t chain = first_chain;
  samples pairs, shared;
  (void)load.rate(round_seconds);
  for (unsigned round = 0; round < reader_rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const double alone = load.rate(round_seconds);
    pairs.add(rate_of_two(load) / alone);
    const auto rate = rate_beside_sessions(context.manager, load, chain);
    if (!rate) return std::unexpected(rate.error());
    shared.add(*rate / alone);
  }
  context.out.add_share("two readers, against one", pairs, 1.8);
  context.out.add_share("a reader beside sessions at full rate, against alone", shared, 0.8);
  return {};
}

}  // namespace cenote::bench
