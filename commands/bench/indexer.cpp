// The index of `cenote indexer`: stores, removals, answers, and questions over HTTP, each beside a plain loop of the
// same run.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "commands/bench/bare_http.hpp"
#include "commands/bench/indexer_parts.hpp"
#include "core/unique_fd.hpp"
#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/http/indexer_service.hpp"
#include "services/indexer/service/service_calls.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::bench::indexer_bench {

namespace {

using namespace indexer;

constexpr std::size_t pod_count = 100;
constexpr std::uint64_t default_blocks = 1'000'000;
constexpr unsigned default_rounds = 100'000;  // questions

/// The limit of a store: names and keys into two arrays and an open table, with nothing else done.
class plain_table {
 public:
  explicit plain_table(std::size_t blocks) : slots_(blocks * 2), keys_(blocks), hashes_(blocks) {}

  void store(std::span<const std::uint64_t> keys, std::span<const std::uint64_t> hashes) noexcept {
    for (std::size_t i = 0; i < keys.size() && count_ < keys_.size(); ++i) {
      keys_[count_] = keys[i];
      hashes_[count_] = hashes[i];
      std::size_t place = spread(hashes[i], 1) % slots_.size();
      while (slots_[place] != 0) place = place + 1 == slots_.size() ? 0 : place + 1;
      slots_[place] = static_cast<std::uint32_t>(++count_);
    }
  }

 private:
  std::vector<std::uint32_t> slots_;
  std::vector<std::uint64_t> keys_, hashes_;
  std::size_t count_ = 0;
};

std::string size_name(std::uint64_t blocks) {
  return blocks % 1'000'000 == 0 ? fmt::format("{} M blocks", blocks / 1'000'000) : fmt::format("{} blocks", blocks);
}

/// Prompts of 1,000 blocks, each on a pod of a hundred.
class index_bench {
 public:
  index_bench(std::uint64_t blocks, const options& options, report& out)
      : prompts_(std::max<std::uint64_t>(blocks / chain_length, 1)),
        rounds_(options.rounds != 0 ? options.rounds : default_rounds),
        out_(out),
        suffix_(", " + size_name(prompts_ * chain_length)),
        processor_(key_chain::xxh3, "bench"),
        index_({.memory = prompts_ * chain_length * 40 + (std::size_t{64} << 20), .members = 4096, .seed = 1}) {
    for (std::size_t i = 0; i < pod_count; ++i) {
      holders_.push_back(*index_.holders().open({.pod = "pod" + std::to_string(i)}));
    }
  }

  result<void> run() {
    store();
    score();
    shared();
    two_readers();
    remove();
    return clear();
  }

 private:
  static constexpr double million = 1e6;
  static constexpr double microseconds = 1e6;

  void store() {
    samples stores;
    samples plain;
    std::array<std::uint64_t, chain_length> keys{};
    std::array<std::uint64_t, chain_length> hashes{};
    plain_table table(prompts_ * chain_length);
    const std::size_t empty = index_.bytes();
    for (std::uint64_t prompt = 0; prompt < prompts_; ++prompt) {
      write_prompt(prompt, keys, hashes);
      const stopwatch time;
      (void)store_prompt(index_, keys, hashes, holders_[prompt % pod_count]);
      stores.add(time.seconds());
      const stopwatch plain_time;
      table.store(keys, hashes);
      plain.add(plain_time.seconds());
    }
    index_.reclaim();
    const double least = prompts_ * chain_length <= 2'000'000 ? 4.5 : 4.0;
    out_.add(rate_figure("indexer", "store of new blocks, 64 an event" + suffix_, stores, plain, chain_length / million,
                         "M blocks/s", {bound::kind::value_at_least, least}));
    out_.add({.bench = "indexer",
              .name = "memory" + suffix_,
              .value = static_cast<double>(index_.bytes() - empty) / static_cast<double>(prompts_ * chain_length),
              .unit = "bytes/block",
              .promise = {bound::kind::value_at_most, 28}});
  }

  [[nodiscard]] static std::size_t ask(prefix_reader& reader, std::span<const std::uint64_t> keys) {
    std::size_t found = 0;
    reader.walk(keys, [&](std::span<const prefix_row> rows) { found = rows.size(); });
    return found;
  }

  /// Three reads of random lines, each where the one before leads: the least that a question of a cold prompt does.
  void time_reads(samples& reads, std::mt19937_64& random, std::span<const std::uint64_t> memory) {
    const stopwatch time;
    std::uint64_t place = random();
    for (int i = 0; i < 3; ++i) place = spread(memory[place % memory.size()] ^ place, 7);
    reads.add(time.seconds());
    sink_ += place;
  }

  void score() {
    auto reader = *prefix_reader::open(index_);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> memory(prompts_ * chain_length * 3);
    for (std::uint64_t& word : memory) word = random();
    samples times;
    samples reads;
    std::array<std::uint64_t, chain_length> keys{};
    for (unsigned i = 0; i < rounds_; ++i) {
      write_prompt(random() % prompts_, keys, {});
      const stopwatch time;
      sink_ += ask(reader, keys);
      times.add(time.seconds());
      time_reads(reads, random, memory);
    }
    const double blocks = static_cast<double>(prompts_ * chain_length);
    const double most = blocks <= 2e6 ? 1 : blocks <= 2e7 ? 2.5 : 4;
    const std::string name = "score of 1,000 keys, a random prompt" + suffix_;
    out_.add(time_figure("indexer", name, times, reads, microseconds, "us", {bound::kind::value_at_most, most}));
    out_.add(late_figure("indexer", name + ", p99", times, times.median(), microseconds, "us",
                         {bound::kind::value_at_most, 10}));
  }

  template <class Depth>
  void shared_row(const std::string& name, std::size_t pods, double bound_us, Depth depth) {
    std::array<std::uint64_t, chain_length> keys{};
    std::array<std::uint64_t, chain_length> hashes{};
    const std::uint64_t prompt = prompts_ + ++shared_;
    write_prompt(prompt, keys, hashes);
    for (std::size_t i = 0; i < pods; ++i) {
      const auto number = index_.holders().open({.pod = "pod" + std::to_string(i)});
      const std::size_t blocks = depth(i);
      (void)index_.store(0, no_block, std::span(keys).first(blocks), std::span(hashes).first(blocks), *number);
    }
    auto reader = *prefix_reader::open(index_);
    samples times;
    for (unsigned i = 0; i < std::min(rounds_, 20'000U); ++i) {
      const stopwatch time;
      sink_ += ask(reader, keys);
      times.add(time.seconds());
    }
    out_.add(time_figure("indexer", name, times, {}, microseconds, "us", {bound::kind::value_at_most, bound_us}));
  }

  void shared() {
    shared_row("score of 1,000 keys, all on 100 pods", 100, 1, [](std::size_t) { return chain_length; });
    shared_row("score of 1,000 keys, 100 pods at 100 depths", 100, 6, [](std::size_t i) { return 10 * (i + 1); });
    shared_row("score of 1,000 keys, 1,000 pods at 1,000 depths", 1000, 100, [](std::size_t i) { return i + 1; });
  }

  /// Times a second of `work(random)`; `stop` ends it.
  template <class Work>
  [[nodiscard]] double repeat_until(const std::atomic<bool>& stop, std::uint64_t seed, Work&& work) {
    std::mt19937_64 random(seed);
    std::uint64_t count = 0;
    std::uint64_t sum = 0;
    const stopwatch time;
    while (!stop.load(std::memory_order_relaxed)) {
      sum += work(random);
      ++count;
    }
    sink_ += sum;
    return static_cast<double>(count) / time.seconds();
  }

  /// Keys of prompts a second, which a reader makes beside asking: the limit of two of them on this machine.
  [[nodiscard]] double make_keys_until(const std::atomic<bool>& stop, std::uint64_t seed) {
    std::array<std::uint64_t, chain_length> keys{};
    return repeat_until(stop, seed, [&](std::mt19937_64& random) {
      write_prompt(random() % prompts_, keys, {});
      return keys[random() % chain_length];
    });
  }

  /// Questions a second of one reader.
  [[nodiscard]] double ask_until(const std::atomic<bool>& stop, std::uint64_t seed) {
    auto reader = *prefix_reader::open(index_);
    std::array<std::uint64_t, chain_length> keys{};
    return repeat_until(stop, seed, [&](std::mt19937_64& random) {
      write_prompt(random() % prompts_, keys, {});
      return std::uint64_t{ask(reader, keys)};
    });
  }

  void two_readers() {
    const auto run_for = [&](unsigned threads, auto&& work) {
      std::atomic<bool> stop{false};
      std::vector<std::future<double>> rates;
      for (unsigned i = 0; i < threads; ++i) {
        rates.push_back(std::async(std::launch::async, [&, i] { return work(stop, std::uint64_t{i} + 1); }));
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
      stop = true;
      double sum = 0;
      for (auto& rate : rates) sum += rate.get();
      return sum;
    };
    const auto ask_all = [&](const std::atomic<bool>& stop, std::uint64_t seed) { return ask_until(stop, seed); };
    const auto make_keys = [&](const std::atomic<bool>& stop, std::uint64_t seed) {
      return make_keys_until(stop, seed);
    };
    const double one = run_for(1, ask_all);
    const double two = run_for(2, ask_all);
    const double plain_one = run_for(1, make_keys);
    const double plain_two = run_for(2, make_keys);
    out_.add({.bench = "indexer",
              .name = "questions a second of two readers, against one" + suffix_,
              .value = two / million,
              .unit = "M/s",
              .limit = one / million,
              .promise = {bound::kind::ratio_at_least, 1.8}});
    out_.add({.bench = "indexer",
              .name = "keys of prompts a second in two threads, against one: the machine's limit",
              .value = plain_two / million,
              .unit = "M/s",
              .limit = plain_one / million,
              .promise = {}});
  }

  void remove() {
    samples tails;
    samples random_ones;
    std::mt19937_64 random(3);
    std::array<std::uint64_t, 16> names{};
    for (std::uint64_t prompt = 0; prompt < prompts_; ++prompt) {
      const stopwatch time;
      for (std::size_t at = chain_length; at > chain_length / 2;) {
        std::size_t count = 0;
        while (count < names.size() && at > chain_length / 2) names[count++] = hash_at(prompt, --at);
        index_.remove(0, std::span(names).first(count), holders_[prompt % pod_count]);
      }
      tails.add(time.seconds());
    }
    for (std::uint64_t i = 0; i < prompts_ * 4; ++i) {
      const std::uint64_t pod = random() % std::min<std::uint64_t>(pod_count, prompts_);
      for (std::uint64_t& name : names) {
        const std::uint64_t prompt = random() % ((prompts_ - pod - 1) / pod_count + 1) * pod_count + pod;
        name = hash_at(prompt, random() % (chain_length / 2));
      }
      const stopwatch time;
      index_.remove(0, names, holders_[pod]);
      random_ones.add(time.seconds());
    }
    out_.add(rate_figure("indexer", "removal from the tail, 16 an event" + suffix_, tails, {},
                         chain_length / 2.0 / million, "M blocks/s", {bound::kind::value_at_least, 8}));
    out_.add(rate_figure("indexer", "removal at random, 16 an event" + suffix_, random_ones, {},
                         static_cast<double>(names.size()) / million, "M blocks/s",
                         {bound::kind::value_at_least, 1.5}));
  }

  result<void> clear() {
    samples times;
    for (const holder each : holders_) {
      const stopwatch time;
      index_.clear(each);
      times.add(time.seconds());
    }
    out_.add(time_figure("indexer", "clear of a pod" + suffix_, times, {}, microseconds, "us",
                         {bound::kind::value_at_most, 1000}));
    while (!index_.sweep(1 << 16)) {
    }
    return {};
  }

  std::uint64_t prompts_;
  unsigned rounds_;
  report& out_;
  std::string suffix_;
  token_processor processor_;
  forest index_;
  std::vector<holder> holders_;
  std::uint64_t shared_ = 0;
  std::atomic<std::uint64_t> sink_{0};
};

/// The limit of a question over a socket: a thread that reads as many bytes, and answers with a few.
class plain_answers {
 public:
  plain_answers() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    client_ = unique_fd(ends[0]);
    server_ = unique_fd(ends[1]);
    thread_ = std::jthread([this] { answer(); });
  }
  plain_answers(const plain_answers&) = delete;
  plain_answers& operator=(const plain_answers&) = delete;
  ~plain_answers() { ::shutdown(client_.get(), SHUT_RDWR); }

  result<void> exchange(std::string_view request) {
    size_ = request.size();
    if (auto sent = send_all(client_.get(), request); !sent) return sent;
    std::array<char, answer_bytes> bytes{};
    if (::recv(client_.get(), bytes.data(), bytes.size(), MSG_WAITALL) != ssize_t{answer_bytes})
      return fail_errno("recv");
    return {};
  }

 private:
  static constexpr std::size_t answer_bytes = 256;

  void answer() const {
    std::array<char, 65'536> part{};
    const std::string bytes(answer_bytes, 'x');
    for (std::size_t taken = 0;;) {
      const auto count = ::recv(server_.get(), part.data(), part.size(), 0);
      if (count <= 0) return;
      taken += static_cast<std::size_t>(count);
      if (taken < size_) continue;
      taken = 0;
      if (!send_all(server_.get(), bytes)) return;
    }
  }

  unique_fd client_, server_;
  std::atomic<std::size_t> size_{0};
  std::jthread thread_;
};

/// Events of one engine, and questions by tokens, as the service takes them.
class event_bench {
 public:
  event_bench(const options& options, report& out)
      : rounds_(options.rounds != 0 ? options.rounds : 2'000),
        out_(out),
        processor_(key_chain::xxh3, "bench"),
        index_({.memory = std::size_t{256} << 20, .members = 4096, .seed = 1}),
        writer_(index_, processor_) {}

  result<void> run() {
    apply_payloads();
    score_tokens();
    return ask_over_socket();
  }

 private:
  static constexpr std::size_t prompt_tokens = 16'000;
  static constexpr std::size_t payloads = 2'000;

  static std::uint32_t token_at(std::uint64_t prompt, std::size_t place) {
    return static_cast<std::uint32_t>(spread(prompt, place) % 120'000);
  }

  /// vLLM's form: an array, 64 blocks.
  static std::vector<std::uint8_t> payload_of(std::uint64_t prompt, std::size_t first_block) {
    nlohmann::json hashes = nlohmann::json::array();
    nlohmann::json tokens = nlohmann::json::array();
    for (std::size_t i = first_block; i < first_block + store_length; ++i) {
      hashes.push_back(hash_at(prompt, i));
      for (std::size_t t = 0; t < block_tokens; ++t) tokens.push_back(token_at(prompt, i * block_tokens + t));
    }
    const nlohmann::json parent =
        first_block == 0 ? nlohmann::json() : nlohmann::json(hash_at(prompt, first_block - 1));
    const nlohmann::json event{"BlockStored", hashes, parent, tokens, block_tokens, nullptr, "GPU", nullptr};
    return nlohmann::json::to_msgpack({1.5, nlohmann::json::array({event}), 0});
  }

  void apply_payloads() {
    std::vector<std::vector<std::uint8_t>> all;
    const std::size_t parts = chain_length / store_length;
    for (std::size_t i = 0; i < payloads; ++i) all.push_back(payload_of(i / parts, i % parts * store_length));
    publisher_identity identity;
    identity.name = identity.pod = "pod0";
    identity.model = "m";
    writer_.open(1, identity);
    samples times;
    samples copies;
    std::vector<std::uint8_t> target(1 << 20);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto bytes = std::as_bytes(std::span(all[i]));
      const stopwatch time;
      writer_.apply(1, "kv@pod0@m", {.turn = i, .seq = i, .source = batch_source::live, .payload = {.bytes = bytes}});
      times.add(time.seconds());
      const stopwatch copy_time;
      std::memcpy(target.data(), all[i].data(), all[i].size());
      copies.add(copy_time.seconds());
    }
    out_.add(rate_figure("indexer", "blocks of events, from payloads to the index, one core", times, copies,
                         static_cast<double>(store_length) / 1e6, "M blocks/s", {bound::kind::value_at_least, 2}));
  }

  static std::vector<std::uint32_t> prompt_of(std::uint64_t prompt) {
    std::vector<std::uint32_t> tokens(prompt_tokens);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = token_at(prompt, i);
    return tokens;
  }

  void score_tokens() {
    auto questions = *scorer::open(index_, processor_);
    samples times;
    samples hashing;
    std::vector<std::uint64_t> keys(prompt_tokens / block_tokens);
    for (unsigned i = 0; i < rounds_; ++i) {
      const auto tokens = prompt_of(i % 100);
      const stopwatch time;
      sink_ += questions.score({.model = "m", .tokens = tokens}).scores.size();
      times.add(time.seconds());
      const stopwatch hash_time;
      processor_.write_keys({.tokens = tokens, .extra_keys = {}, .parent = std::nullopt},
                            {.model = "m", .lora_name = {}, .block_tokens = block_tokens}, keys);
      hashing.add(hash_time.seconds());
      sink_ += keys.back();
    }
    out_.add(time_figure("indexer", "score from 16,000 tokens, against their keys alone", times, hashing, 1e6, "us",
                         {bound::kind::value_at_most, 15}));
  }

  result<void> ask_over_socket() {
    const auto folder = std::filesystem::temp_directory_path() / fmt::format("cenote-bench-{}", ::getpid());
    std::filesystem::create_directories(folder);
    const std::string path = folder / "indexer.sock";
    const auto measured = ask_at(path);
    std::filesystem::remove_all(folder);
    return measured;
  }

  result<void> ask_at(const std::string& path) {
    auto events = subscriber::start({}, writer_);
    if (!events) return std::unexpected(events.error());
    shared_weights weights;
    weights.set({});
    dump_places dumps{dump_places::max()};
    http::request_server_options settings;
    settings.sockets.push_back({.path = path});
    settings.threads = 1;
    auto server = http::request_server::bind(std::move(settings));
    if (!server) return std::unexpected(server.error());
    question_totals questions;
    const service_parts parts{.events = **events, .questions = questions, .start = std::chrono::steady_clock::now()};
    const memory_parts memory{
        .index = index_, .processor = processor_, .writer = writer_, .weights = weights, .dumps = dumps};
    (*server)->serve([&]() -> std::unique_ptr<http::request_handler> {
      return std::make_unique<indexer_service>(std::move(service_calls::make(parts, memory).value()));
    });
    auto client = bare_http_client::connect(path);
    if (!client) return std::unexpected(client.error());
    plain_answers peer;
    samples times;
    samples plain;
    for (unsigned i = 0; i < rounds_; ++i) {
      const auto tokens = prompt_of(i % 100);
      std::string request = fmt::format(
          "POST /v1/scores?model_name=m HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
          "Content-Length: {}\r\n\r\n",
          tokens.size() * sizeof(tokens[0]));
      request.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0]));
      const stopwatch time;
      if (auto asked = client->exchange(request); !asked) return asked;
      times.add(time.seconds());
      const stopwatch plain_time;
      if (auto asked = peer.exchange(request); !asked) return asked;
      plain.add(plain_time.seconds());
    }
    const std::string name = "score from 16,000 tokens over HTTP on a Unix socket";
    out_.add(time_figure("indexer", name + ", against a bare exchange", times, plain, 1e6, "us", {}));
    out_.add({.bench = "indexer",
              .name = name + ", beyond that exchange",
              .value = (times.median() - plain.median()) * 1e6,
              .unit = "us",
              .promise = {bound::kind::value_at_most, 60}});
    out_.add(
        late_figure("indexer", name + ", p99", times, times.median(), 1e6, "us", {bound::kind::value_at_most, 300}));
    return {};
  }

  unsigned rounds_;
  report& out_;
  token_processor processor_;
  forest index_;
  indexer_writer writer_;
  std::uint64_t sink_ = 0;
};

}  // namespace

result<void> run(const options& options, report& out) {
  const std::vector<std::uint64_t> sizes = options.blocks.empty() ? std::vector{default_blocks} : options.blocks;
  for (const std::uint64_t blocks : sizes) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (auto done = index_bench(blocks, options, out).run(); !done) return done;
  }
  if (auto done = event_bench(options, out).run(); !done) return done;
  if (auto done = indexer_memory_bench::run(out); !done) return done;
  if (auto done = indexer_writer_bench::run(out); !done) return done;
  return indexer_trace_bench::run(options, out);
}

}  // namespace cenote::bench::indexer_bench
