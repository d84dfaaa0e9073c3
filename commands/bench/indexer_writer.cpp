// A writer at full rate beside two readers. Three threads share what cores there are, so rates are of a second of a
// thread's processor time.
#include <atomic>
#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commands/bench/indexer_parts.hpp"
#include "services/indexer/forest/prefix_reader.hpp"

namespace cenote::bench::indexer_writer_bench {

namespace {

using namespace indexer;

constexpr std::uint64_t prompts = 1000;      // that are asked for
constexpr std::uint64_t kept_prompts = 500;  // of the writer, the newest
constexpr std::size_t removal_length = 64;   // blocks of an event
constexpr int rounds = 5;
constexpr std::chrono::milliseconds round_time{500};

/// Work of a thread, by its processor's time.
struct thread_rate {
  std::uint64_t count = 0;
  double seconds = 0;
  [[nodiscard]] double value() const noexcept { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
};

/// Repeats `work`, which gives its amount, until `stop`.
template <class Work>
thread_rate repeat_until(const std::atomic<bool>& stop, Work&& work) {
  const double begin = thread_cpu_seconds();
  thread_rate done;
  while (!stop.load(std::memory_order_relaxed)) done.count += work();
  done.seconds = thread_cpu_seconds() - begin;
  return done;
}

/// Prompts come and go; the index is full, as a service's is in the long run.
class steady_writer {
 public:
  explicit steady_writer(forest& index) : index_(index), holder_(*index.holders().open({.pod = "writer"})) {
    for (std::uint64_t i = 0; i < 3 * kept_prompts; ++i) (void)exchange_prompt();
  }

  /// Stores a prompt and removes an old one, the tail first: the number of blocks stored.
  std::size_t exchange_prompt() {
    write_prompt(next_, keys_, hashes_);
    const std::size_t stored = store_prompt(index_, keys_, hashes_, holder_);
    const std::uint64_t old = next_++ - kept_prompts;
    if (old < prompts) return stored;  // the first ones are the readers'
    std::array<std::uint64_t, removal_length> names{};
    for (std::size_t at = chain_length; at > 0;) {
      std::size_t count = 0;
      while (count < names.size() && at > 0) names[count++] = hash_at(old, --at);
      index_.remove(0, std::span(names).first(count), holder_);
    }
    return stored;
  }

 private:
  forest& index_;
  holder holder_;
  std::uint64_t next_ = prompts;
  std::array<std::uint64_t, chain_length> keys_{};
  std::array<std::uint64_t, chain_length> hashes_{};
};

thread_rate ask_until(forest& index, const std::atomic<bool>& stop, std::uint64_t seed) {
  auto reader = *prefix_reader::open(index);
  std::mt19937_64 random(seed);
  std::array<std::uint64_t, chain_length> keys{};
  return repeat_until(stop, [&] {
    write_prompt(random() % prompts, keys, {});
    std::size_t rows = 0;
    reader.walk(keys, [&](std::span<const prefix_row> found) { rows = found.size(); });
    return rows;  // one: each prompt is on one pod
  });
}

struct round_rates {
  thread_rate written;
  double questions = 0;  ///< the sum of the readers
};

round_rates run_round(forest& index, steady_writer* writer, unsigned readers) {
  std::atomic<bool> stop{false};
  std::vector<std::future<thread_rate>> asking;
  for (unsigned i = 0; i < readers; ++i) {
    asking.push_back(std::async(std::launch::async, [&index, &stop, i] { return ask_until(index, stop, i + 1); }));
  }
  std::future<thread_rate> writing;
  if (writer != nullptr) {
    writing =
        std::async(std::launch::async, [&] { return repeat_until(stop, [&] { return writer->exchange_prompt(); }); });
  }
  std::this_thread::sleep_for(round_time);
  stop = true;
  round_rates found;
  if (writer != nullptr) found.written = writing.get();
  for (auto& each : asking) found.questions += each.get().value();
  return found;
}

}  // namespace

result<void> run(report& out) {
  forest index({.memory = std::size_t{48} << 20, .members = 4096, .seed = 1});
  std::array<std::uint64_t, chain_length> keys{};
  std::array<std::uint64_t, chain_length> hashes{};
  const holder asked = *index.holders().open({.pod = "pod"});
  for (std::uint64_t prompt = 0; prompt < prompts; ++prompt) {
    write_prompt(prompt, keys, hashes);
    (void)store_prompt(index, keys, hashes, asked);
  }
  steady_writer writer(index);
  samples written;
  samples written_alone;
  samples two_asked;
  samples one_asked;
  for (int i = 0; i < rounds; ++i) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const round_rates beside = run_round(index, &writer, 2);
    written.add(beside.written.value());
    two_asked.add(beside.questions);
    written_alone.add(run_round(index, &writer, 0).written.value());
    one_asked.add(run_round(index, nullptr, 1).questions);
  }
  constexpr double million = 1e6;
  const auto add = [&](std::string name, std::string unit, const samples& figures, const samples& limits,
                       double least) {
    out.add({.bench = "indexer",
             .name = std::move(name),
             .value = figures.median() / million,
             .unit = std::move(unit),
             .limit = limits.median() / million,
             .low = figures.quantile(0.1) / million,
             .high = figures.quantile(0.9) / million,
             .promise = {bound::kind::ratio_at_least, least}});
  };
  add("blocks that a writer at full rate exchanges beside two readers, against alone, of its processor time",
      "M blocks/s", written, written_alone, 0.8);
  add("questions of two readers beside that writer, against one without, of their processor time", "M/s", two_asked,
      one_asked, 1.8);
  return {};
}

}  // namespace cenote::bench::indexer_writer_bench
