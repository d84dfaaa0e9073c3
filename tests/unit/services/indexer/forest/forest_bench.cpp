// Prints what the index does in a second, in how many bytes and how fast it answers: `forest_bench [blocks]`.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "services/indexer/forest/prefix_reader.hpp"

namespace {

using namespace cenote::indexer;
using steady = std::chrono::steady_clock;

constexpr std::size_t length = 1000;  // blocks of a chain
constexpr std::size_t pods = 100;
constexpr std::size_t blocks_per_store = 64;

double seconds_since(steady::time_point begin) {
  return std::chrono::duration<double>(steady::now() - begin).count();
}

/// Of this thread, without what others took of the processor meanwhile.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::vector<std::uint64_t> chain(std::uint64_t seed, std::size_t count) {
  std::vector<std::uint64_t> keys(count);
  std::uint64_t parent = spread(seed, 0);
  for (std::uint64_t& key : keys) parent = key = spread(parent, 0);
  return keys;
}

/// Chains of 1,000 blocks, on a pod each.
class bench {
 public:
  explicit bench(std::size_t blocks) : index_({.memory = std::size_t{2} << 30, .members = 4096, .seed = 1}) {
    for (std::size_t i = 0; i < blocks / length; ++i) {
      chains_.push_back(chain(i + 1, length));
      names_.push_back(chain(~i, length));
    }
    for (std::size_t i = 0; i < pods; ++i)
      holders_.push_back(*index_.holders().open({.pod = "pod" + std::to_string(i)}));
  }

  void run() {
    const std::size_t empty = index_.bytes();
    store("new");
    index_.reclaim();
    std::printf("%-34s %8.2f\n", "bytes a block",
                static_cast<double>(index_.bytes() - empty) / static_cast<double>(blocks()));
    store("again");
    score("score, random chain");
    two_readers();
    shared("all on 100 pods", [](std::size_t) { return length; });
    shared("100 pods at 100 depths", [](std::size_t pod) { return 10 * (pod + 1); });
    remove_tails();
    store("after removal");
    remove_randomly();
  }

 private:
  [[nodiscard]] std::size_t blocks() const { return chains_.size() * length; }

  void print_rate(const char* title, std::size_t count, steady::time_point begin, double processor) const {
    const double millions = static_cast<double>(count) / 1e6;
    std::printf("%-34s %8.2f M blocks/s, of processor time %.2f\n", title, millions / seconds_since(begin),
                millions / (processor_seconds() - processor));
  }

  void store(const char* title) {
    const auto begin = steady::now();
    const double processor = processor_seconds();
    std::size_t stored = 0;
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      block_number parent = no_block;
      for (std::size_t at = 0; at < length; at += blocks_per_store) {
        const std::size_t count = std::min(blocks_per_store, length - at);
        const std::span names = std::span(names_[i]).subspan(at, count);
        stored +=
            index_.store(0, parent, std::span(chains_[i]).subspan(at, count), names, holders_[i % pods]).value_or(0);
        parent = index_.block_of(0, names.back());
      }
    }
    print_rate((std::string("store, ") + title).c_str(), stored, begin, processor);
  }

  void ask(prefix_reader& reader, const std::vector<std::uint64_t>& keys, std::size_t rows) {
    reader.walk(keys, [&](std::span<const prefix_row> found) {
      if (found.size() != rows) std::abort();
    });
  }

  void print_times(const char* title, std::vector<double>& times) const {
    std::ranges::sort(times);
    std::printf("%-34s p50 %.2f p99 %.2f us\n", title, times[times.size() / 2] * 1e6,
                times[times.size() * 99 / 100] * 1e6);
  }

  void score(const char* title) {
    auto reader = *prefix_reader::open(index_);
    std::mt19937_64 random(1);
    std::vector<double> times;
    for (int i = 0; i < 200'000; ++i) {
      const auto& keys = chains_[random() % chains_.size()];
      // The caller has just made the keys.
      std::uint64_t sum = 0;
      for (const std::uint64_t key : keys) sum += key;
      if (sum == 1) std::abort();
      const auto begin = steady::now();
      ask(reader, keys, 1);
      times.push_back(seconds_since(begin));
    }
    print_times(title, times);
  }

  template <class Depth>
  void shared(const char* title, Depth depth) {
    const auto keys = chain(777'000'000 + depth(0), length);
    const auto names = chain(888'000'000 + depth(0), length);
    for (std::size_t i = 0; i < pods; ++i) {
      (void)index_.store(0, no_block, std::span(keys).first(depth(i)), std::span(names).first(depth(i)), holders_[i]);
    }
    auto reader = *prefix_reader::open(index_);
    std::vector<double> times;
    for (int i = 0; i < 20'000; ++i) {
      const auto begin = steady::now();
      ask(reader, keys, pods);
      times.push_back(seconds_since(begin));
    }
    print_times(title, times);
  }

  void remove_tails() {
    const auto begin = steady::now();
    const double processor = processor_seconds();
    std::size_t removed = 0;
    std::array<std::uint64_t, 16> names{};
    for (std::size_t i = 0; i < chains_.size(); ++i) {
      for (std::size_t at = length; at > length / 2;) {
        std::size_t count = 0;
        while (count < names.size() && at > length / 2) names[count++] = names_[i][--at];
        removed += index_.remove(0, std::span(names).first(count), holders_[i % pods]).blocks;
      }
    }
    print_rate("remove, tails", removed, begin, processor);
  }

  void remove_randomly() {
    std::mt19937_64 random(2);
    const std::size_t request = blocks() / 4;
    std::vector<std::pair<holder, std::uint64_t>> chosen;
    for (std::size_t i = 0; i < request; ++i) {
      const std::size_t number = random() % chains_.size();
      chosen.emplace_back(holders_[number % pods], names_[number][random() % length]);
    }
    std::ranges::stable_sort(chosen, {}, [](const auto& one) { return one.first; });  // a batch is of one pod
    const auto begin = steady::now();
    const double processor = processor_seconds();
    std::vector<std::uint64_t> names;
    for (std::size_t i = 0; i < chosen.size();) {
      names.clear();
      const holder removed = chosen[i].first;
      while (i < chosen.size() && chosen[i].first == removed && names.size() < 16) names.push_back(chosen[i++].second);
      (void)index_.remove(0, names, removed);
    }
    print_rate("remove, at random", request, begin, processor);
  }

  void two_readers() {
    constexpr std::size_t questions = 300'000;
    const auto ask_all = [&](std::uint64_t seed, double& rate) {
      auto reader = *prefix_reader::open(index_);
      std::mt19937_64 random(seed);
      const auto begin = steady::now();
      for (std::size_t i = 0; i < questions; ++i) ask(reader, chains_[random() % chains_.size()], 1);
      rate = static_cast<double>(questions) / seconds_since(begin) / 1e6;
    };
    double one = 0;
    double first = 0;
    double second = 0;
    ask_all(1, one);
    std::thread beside([&] { ask_all(2, first); });
    ask_all(3, second);
    beside.join();
    std::printf("%-34s %.2f; %.2f + %.2f M questions/s\n", "one reader; two readers", one, first, second);
  }

  forest index_;
  std::vector<std::vector<std::uint64_t>> chains_;
  std::vector<std::vector<std::uint64_t>> names_;
  std::vector<holder> holders_;
};

}  // namespace

int main(int count, char** arguments) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  bench(count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1'000'000).run();
  return 0;
}
