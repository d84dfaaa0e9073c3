// A conversation trace over 1,000 pods: a router's questions beside the events that its choices cause.
//
// Each request is scored and goes to the pod with the longest prefix if that is half of the prompt at least, else to
// the one with the least to compute so far (a cache-aware router's rule, as in SGLang's). The pod's cache is the least
// recently used 65,536 tokens; what enters and leaves it becomes batches of events, as vLLM's, which another thread
// applies when they are due. All of the trace but its end is applied at once, so that caches are full.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>
#include <queue>
#include <random>
#include <semaphore>
#include <thread>
#include <unordered_map>

#include "commands/bench/indexer_parts.hpp"
#include "commands/replay/trace.hpp"
#include "services/indexer/scoring/scorer.hpp"
#include "services/indexer/service/indexer_writer.hpp"
#include "simulation/workload.hpp"

namespace cenote::bench::indexer_trace_bench {

namespace {

using namespace indexer;
using simulation::trace;
using steady_clock = std::chrono::steady_clock;

constexpr std::size_t pod_count = 1000;
constexpr std::size_t pod_blocks = 128;  // of the trace, in a pod's cache
constexpr std::size_t parts_of_block = trace::tokens_per_block / block_tokens;
constexpr std::size_t step_blocks = 4;  // of the trace, which an engine computes in a step
constexpr unsigned speed = 20;
constexpr std::chrono::milliseconds step_time{200 / speed};
constexpr std::uint64_t paced_ms = 5'000;
constexpr unsigned asked_each_time = 16;     // the request, and others of late
constexpr std::size_t late_requests = 1000;  // from which those are taken
constexpr std::string_view model = "m";
constexpr std::string_view made_trace = "chat:requests=12000,rate=0.7,input_tokens=6000,systems=1,system_tokens=512";

std::uint32_t token_at(std::uint32_t block, std::size_t place) {
  return static_cast<std::uint32_t>(spread((std::uint64_t{block} << 10) | place, 0x70c5) % 120'000);
}

std::uint64_t name_at(std::uint32_t block, std::size_t part) {
  return spread((std::uint64_t{block} << 10) | part, 0xb10c);
}

/// MessagePack of a batch in vLLM's form.
class batch_text {
 public:
  void begin(std::size_t events) {
    bytes_.clear();
    array(3);
    put(0xcb, 0, 8);  // a time
    array(events);
  }
  void removed(std::span<const std::uint32_t> blocks) {
    array(3);
    text("BlockRemoved");
    names(blocks);
    text("GPU");
  }
  void stored(std::span<const std::uint32_t> blocks, std::optional<std::uint32_t> parent) {
    array(8);
    text("BlockStored");
    names(blocks);
    parent ? number(name_at(*parent, parts_of_block - 1)) : nil();
    array(blocks.size() * trace::tokens_per_block);
    for (const std::uint32_t block : blocks) {
      for (std::size_t i = 0; i < trace::tokens_per_block; ++i) number(token_at(block, i));
    }
    number(block_tokens);
    nil();
    text("GPU");
    nil();
  }
  [[nodiscard]] std::span<const std::byte> end() {
    number(0);  // the rank
    return bytes_;
  }

 private:
  void put(std::uint8_t lead, std::uint64_t value, std::size_t width) {
    const std::uint64_t big = __builtin_bswap64(value << (8 * (8 - width)));
    const std::size_t at = bytes_.size();
    bytes_.resize(at + 1 + width);
    bytes_[at] = std::byte{lead};
    std::memcpy(&bytes_[at + 1], &big, width);
  }
  void nil() { bytes_.push_back(std::byte{0xc0}); }
  void array(std::size_t size) { put(0xdd, size, 4); }
  void number(std::uint64_t value) { value > 0xffff'ffff ? put(0xcf, value, 8) : put(0xce, value, 4); }
  void text(std::string_view value) {
    bytes_.push_back(static_cast<std::byte>(0xa0 | value.size()));
    const auto* const data = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), data, data + value.size());
  }
  void names(std::span<const std::uint32_t> blocks) {
    array(blocks.size() * parts_of_block);
    for (const std::uint32_t block : blocks) {
      for (std::size_t part = 0; part < parts_of_block; ++part) number(name_at(block, part));
    }
  }

  std::vector<std::byte> bytes_;
};

/// Changes that a request makes in the cache of its pod.
struct cache_change {
  std::size_t pod = 0;
  steady_clock::time_point due{};
  std::optional<std::uint32_t> parent{};  ///< of the first stored block
  std::vector<std::uint32_t> stored{};
  std::vector<std::uint32_t> removed{};  ///< the tails first

  [[nodiscard]] std::size_t steps() const noexcept {
    return (std::max(stored.size(), removed.size()) + step_blocks - 1) / step_blocks;
  }
  [[nodiscard]] std::size_t blocks() const noexcept { return (stored.size() + removed.size()) * parts_of_block; }
};

/// The least recently used blocks of the trace, each behind the one in front of it: a block is never without its
/// parent.
class pod_cache {
 public:
  /// The request has these blocks now, as far as they fit.
  cache_change use(std::span<const std::uint32_t> blocks, std::uint64_t request) {
    const auto used = blocks.first(std::min(blocks.size(), pod_blocks));
    cache_change change;
    for (std::size_t i = 0; i < used.size(); ++i) {
      const std::uint64_t stamp = (request << 16) | (used.size() - i);
      const auto [place, is_new] = stamps_.try_emplace(used[i], stamp);
      if (is_new) {
        if (change.stored.empty() && i > 0) change.parent = used[i - 1];
        change.stored.push_back(used[i]);
      } else {
        order_.erase(place->second);
        place->second = stamp;
      }
      order_.emplace(stamp, used[i]);
    }
    while (order_.size() > pod_blocks) {
      change.removed.push_back(order_.begin()->second);
      stamps_.erase(order_.begin()->second);
      order_.erase(order_.begin());
    }
    return change;
  }

 private:
  std::unordered_map<std::uint32_t, std::uint64_t> stamps_;
  std::map<std::uint64_t, std::uint32_t> order_;
};

/// Publishers of the pods, and what applies their events.
class pod_events {
 public:
  pod_events(forest& index, const token_processor& processor) : writer_(index, processor) {
    for (std::size_t pod = 0; pod < pod_count; ++pod) {
      publisher_identity identity;
      identity.name = identity.pod = fmt::format("pod{}", pod);
      identity.model = model;
      topics_.push_back(fmt::format("kv@{}@{}", identity.pod, model));
      writer_.open(pod + 1, identity);
    }
  }

  void apply_step(const cache_change& change, std::size_t step) {
    const auto part = [&](const std::vector<std::uint32_t>& all) {
      const std::size_t first = std::min(step * step_blocks, all.size());
      return std::span(all).subspan(first, std::min(step_blocks, all.size() - first));
    };
    const auto removed = part(change.removed);
    const auto stored = part(change.stored);
    text_.begin(std::size_t{!removed.empty()} + std::size_t{!stored.empty()});
    if (!removed.empty()) text_.removed(removed);
    if (!stored.empty()) {
      text_.stored(stored, step == 0 ? change.parent : std::optional(change.stored[step * step_blocks - 1]));
    }
    const feed_apply batch{
        .turn = turn_, .seq = turn_, .source = batch_source::live, .payload = {.bytes = text_.end()}};
    ++turn_;
    writer_.apply(change.pod + 1, topics_[change.pod], batch);
  }
  void apply(const cache_change& change) {
    for (std::size_t step = 0; step < change.steps(); ++step) apply_step(change, step);
  }
  void advance() { writer_.advance(steady_clock::now()); }
  [[nodiscard]] writer_figures figures() const { return writer_.figures(); }

 private:
  indexer_writer writer_;
  std::vector<std::string> topics_;
  batch_text text_;
  std::uint64_t turn_ = 0;
};

/// A thread that applies the steps of changes when they are due. One other thread hands them over, `limit` at most.
class paced_writer {
 public:
  paced_writer(pod_events& events, std::size_t limit) : events_(events) {
    changes_.reserve(limit);
    thread_ = std::thread([this] { run(); });
  }
  paced_writer(const paced_writer&) = delete;
  paced_writer& operator=(const paced_writer&) = delete;
  paced_writer(paced_writer&&) = delete;
  paced_writer& operator=(paced_writer&&) = delete;
  ~paced_writer() { finish(); }

  void add(cache_change change) {
    changes_.push_back(std::move(change));  // never moves the others
    published_.store(changes_.size(), std::memory_order_release);
    news_.release();
  }
  /// Waits until all is applied.
  void finish() {
    if (!thread_.joinable()) return;
    is_ended_.store(true, std::memory_order_release);
    news_.release();
    thread_.join();
  }

  /// Of all that was handed over; when the last of it was due, and when it was applied. Behind finish().
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] steady_clock::time_point last_due() const noexcept { return last_due_; }
  [[nodiscard]] steady_clock::time_point last_applied() const noexcept { return last_applied_; }

 private:
  struct due_step {
    steady_clock::time_point due{};
    std::size_t change = 0;
    std::size_t step = 0;
    friend bool operator>(const due_step& one, const due_step& other) noexcept { return one.due > other.due; }
  };

  void run() {
    constexpr std::chrono::milliseconds beat{100};
    steady_clock::time_point next_beat = steady_clock::now() + beat;
    for (;;) {
      const bool is_last = is_ended_.load(std::memory_order_acquire);
      for (const std::size_t all = published_.load(std::memory_order_acquire); next_change_ < all; ++next_change_) {
        blocks_ += changes_[next_change_].blocks();
        if (changes_[next_change_].steps() > 0) due_.push({changes_[next_change_].due, next_change_, 0});
      }
      if (is_last && due_.empty()) return;
      const steady_clock::time_point now = steady_clock::now();
      if (now >= next_beat) {
        events_.advance();
        next_beat = now + beat;
      }
      if (due_.empty() || due_.top().due > now) {
        (void)news_.try_acquire_until(due_.empty() ? next_beat : std::min(due_.top().due, next_beat));
        continue;
      }
      apply_next();
    }
  }

  void apply_next() {
    const due_step next = due_.top();
    due_.pop();
    const cache_change& change = changes_[next.change];
    events_.apply_step(change, next.step);
    last_due_ = std::max(last_due_, next.due);
    last_applied_ = steady_clock::now();
    if (next.step + 1 < change.steps()) due_.push({next.due + step_time, next.change, next.step + 1});
  }

  pod_events& events_;
  std::vector<cache_change> changes_;
  std::atomic<std::size_t> published_{0};
  std::atomic<bool> is_ended_{false};
  std::counting_semaphore<> news_{0};
  std::priority_queue<due_step, std::vector<due_step>, std::greater<>> due_;
  std::size_t next_change_ = 0;
  std::size_t blocks_ = 0;
  steady_clock::time_point last_due_{};
  steady_clock::time_point last_applied_{};
  std::thread thread_;
};

/// Chooses pods by the index's answers, and keeps their caches.
class cache_router {
 public:
  /// The pod for a request of this answer, and what changes there.
  cache_change route(const score_answer& answer, std::span<const std::uint32_t> blocks) {
    const std::size_t pod = choose(answer);
    cache_change change = caches_[pod].use(blocks, ++requests_);
    change.pod = pod;
    loads_[pod] += change.stored.size();
    return change;
  }

 private:
  [[nodiscard]] std::size_t choose(const score_answer& answer) const {
    const auto least_loaded = [&](std::size_t one, std::size_t other) { return loads_[one] < loads_[other]; };
    if (answer.scores.empty() || answer.scores.front().blocks * 2 < answer.blocks) {
      return static_cast<std::size_t>(std::ranges::min_element(loads_) - loads_.begin());
    }
    std::size_t best = number_of(answer.scores.front().pod);
    for (const pod_score& each : answer.scores) {
      if (each.score < answer.scores.front().score) break;
      best = std::min(best, number_of(each.pod), least_loaded);
    }
    return best;
  }
  [[nodiscard]] static std::size_t number_of(std::string_view pod) noexcept {
    std::size_t number = 0;
    (void)std::from_chars(pod.data() + 3, pod.data() + pod.size(), number);
    return number;
  }

  std::vector<pod_cache> caches_{pod_count};
  std::vector<std::size_t> loads_ = std::vector<std::size_t>(pod_count);  ///< blocks computed so far
  std::uint64_t requests_ = 0;
};

/// Ways to ask: the index for the rows of keys; for an answer, in its order, to keys; for one to tokens.
enum class question_form : std::uint8_t { rows_of_keys, answer_to_keys, answer_to_tokens };
constexpr std::size_t question_forms = 3;
using form_times = std::array<samples, question_forms>;

class trace_bench {
 public:
  explicit trace_bench(trace requests, std::string name)
      : trace_(std::move(requests)),
        name_(std::move(name)),
        processor_(key_chain::xxh3, "bench"),
        index_({.memory = std::size_t{512} << 20, .members = 4096, .seed = 1}),
        events_(index_, processor_),
        scorer_(*scorer::open(index_, processor_)) {}

  result<void> run(report& out) {
    const auto requests = trace_.requests();
    const std::uint64_t window = std::min<std::uint64_t>(paced_ms * speed, requests.back().time_ms / 2);
    const std::uint64_t begin = requests.back().time_ms - window;
    std::size_t first = 0;
    while (first < requests.size() && requests[first].time_ms < begin) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      prepare(first);
      events_.apply(router_.route(ask_keys(), trace_.blocks(requests[first++])));
    }
    events_.advance();
    const steady_clock::time_point start = steady_clock::now();
    paced_writer writer(events_, requests.size() - first);
    if (auto done = play(first, start, writer); !done) return done;
    writer.finish();
    if (auto done = ask_again(); !done) return done;
    add_rows(writer, start, out);
    return {};
  }

 private:
  struct timed_question {
    std::size_t request = 0;
    question_form form{};
    std::chrono::milliseconds offset{};  ///< from the start
  };

  /// Makes the tokens of a request, and its keys.
  void prepare(std::size_t request) {
    tokens_.clear();
    for (const std::uint32_t block : trace_.blocks(trace_.requests()[request])) {
      for (std::size_t i = 0; i < trace::tokens_per_block; ++i) tokens_.push_back(token_at(block, i));
    }
    keys_.resize(tokens_.size() / block_tokens);
    processor_.write_keys({.tokens = tokens_, .extra_keys = {}, .parent = std::nullopt},
                          {.model = model, .lora_name = {}, .block_tokens = block_tokens}, keys_);
  }
  score_answer ask_keys() { return scorer_.score({.model = model, .block_keys = keys_}); }

  void time_question(const timed_question& question, form_times& times) {
    prepare(question.request);
    const auto facts = scorer_.reader().model(model);
    const stopwatch time;
    switch (question.form) {
      case question_form::rows_of_keys:
        scorer_.reader().walk({.keys = keys_, .model = &*facts, .block_tokens = block_tokens},
                              [&](std::span<const prefix_row> rows) { sink_ += rows.size(); });
        break;
      case question_form::answer_to_keys: sink_ += ask_keys().scores.size(); break;
      case question_form::answer_to_tokens:
        sink_ += scorer_.score({.model = model, .tokens = tokens_}).scores.size();
        break;
    }
    times[static_cast<std::size_t>(question.form)].add(time.seconds());
  }

  /// Plays the requests from `first` on at their times.
  result<void> play(std::size_t first, steady_clock::time_point start, paced_writer& writer) {
    std::mt19937_64 random(11);
    const auto requests = trace_.requests();
    for (std::size_t i = first; i < requests.size(); ++i) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      const std::chrono::milliseconds offset((requests[i].time_ms - requests[first].time_ms) / speed);
      std::this_thread::sleep_until(start + offset);
      for (unsigned j = 0; j < asked_each_time; ++j) {
        const std::size_t other = i - std::min(i, random() % late_requests);
        schedule_.push_back({j == 0 ? i : other, static_cast<question_form>((i + j) % question_forms), offset});
        time_question(schedule_.back(), event_times_);
        if (j > 0) continue;
        prepare(i);
        cache_change change = router_.route(ask_keys(), trace_.blocks(requests[i]));
        change.due = steady_clock::now();
        writer.add(std::move(change));
      }
    }
    return {};
  }

  /// The same questions at the same times, and no events.
  result<void> ask_again() {
    const steady_clock::time_point start = steady_clock::now();
    for (const timed_question& each : schedule_) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      std::this_thread::sleep_until(start + each.offset);
      time_question(each, quiet_times_);
    }
    return {};
  }

  void add_rows(const paced_writer& writer, steady_clock::time_point start, report& out) const {
    constexpr double microseconds = 1e6;
    const auto add = [&](std::string_view title, question_form form, bound promise) {
      const samples& beside = event_times_[static_cast<std::size_t>(form)];
      const samples& alone = quiet_times_[static_cast<std::size_t>(form)];
      const std::string name = fmt::format("{} of a {} on 1,000 pods, beside its events at 20 x", title, name_);
      out.add(time_figure("indexer", name, beside, alone, microseconds, "us"));
      out.add(late_figure("indexer", name + ", p99", beside, alone.quantile(0.99), microseconds, "us", promise));
    };
    add("score of the keys", question_form::rows_of_keys, {bound::kind::value_at_most, 50});
    add("answer to the keys", question_form::answer_to_keys, {});
    add("answer to the tokens", question_form::answer_to_tokens, {});
    const auto rate = [&](steady_clock::time_point end) {
      return static_cast<double>(writer.blocks()) / std::chrono::duration<double>(end - start).count() / 1e6;
    };
    out.add({.bench = "indexer",
             .name = fmt::format("blocks of events of a {} on 1,000 pods at 20 x, against those that are due", name_),
             .value = rate(writer.last_applied()),
             .unit = "M blocks/s",
             .limit = rate(writer.last_due()),
             .promise = {}});
  }

  trace trace_;
  std::string name_;
  token_processor processor_;
  forest index_;
  pod_events events_;
  scorer scorer_;
  cache_router router_;
  std::vector<std::uint32_t> tokens_;
  std::vector<std::uint64_t> keys_;
  std::vector<timed_question> schedule_;
  form_times event_times_, quiet_times_;
  std::uint64_t sink_ = 0;
};

result<trace> requests_of(const std::string& path) {
  if (path.empty()) return simulation::generate(made_trace);
  auto read = read_trace_file(path, {.block_tokens = simulation::trace::tokens_per_block, .full_blocks = true});
  if (!read) return std::unexpected(read.error());
  return std::move(read->requests);
}

}  // namespace

result<void> run(const options& options, report& out) {
  auto requests = requests_of(options.trace);
  if (!requests) return std::unexpected(requests.error());
  return trace_bench(requests->full_blocks(requests->requests().size()),
                     options.trace.empty() ? "made conversation" : "conversation")
      .run(out);
}

}  // namespace cenote::bench::indexer_trace_bench
