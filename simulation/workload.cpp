#include "simulation/workload.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <vector>

namespace cenote::simulation {

namespace {

// ---------------------------------------------------------------------------------------------- parameters

constexpr double most_tokens = 1e6;
constexpr double most_seconds = 1e6;
constexpr double most_requests = 1e6;
constexpr double most_seed = 1e15;

constexpr workload_parameter requests_parameter{"requests", 6'000, 1, most_requests, "how many requests"};
constexpr workload_parameter seed_parameter{"seed", 1, 0, most_seed, "another seed is another trace of the same kind"};

constexpr std::array chat_parameters{
    requests_parameter,
    seed_parameter,
    workload_parameter{"rate", 0.5, 1e-3, 1e3, "conversations that begin, a second"},
    workload_parameter{"turns", 5, 1, 1e3, "mean requests of a conversation"},
    workload_parameter{"think", 60, 0, most_seconds, "mean s between two turns"},
    workload_parameter{"systems", 4, 1, 1e4, "system prompts, each as likely as the others"},
    workload_parameter{"system_tokens", 3'000, 0, most_tokens, "length of a system prompt"},
    workload_parameter{"input_tokens", 2'000, 1, most_tokens, "mean of what a turn adds before it is asked"},
    workload_parameter{"answer_tokens", 500, 0, most_tokens, "mean of what an answer adds"}};

constexpr std::array agents_parameters{
    requests_parameter,
    seed_parameter,
    workload_parameter{"agents", 40, 1, 1e5, "agents at work at any time"},
    workload_parameter{"steps", 30, 1, 1e4, "mean requests of a task; then the agent begins another one"},
    workload_parameter{"think", 5, 0, most_seconds, "mean s between two requests of an agent"},
    workload_parameter{"repeat", 0.85, 0, 1, "share of requests that are their predecessor once more, to the token"},
    workload_parameter{"systems", 4, 1, 1e4, "tool descriptions, each as likely as the others"},
    workload_parameter{"system_tokens", 2'000, 0, most_tokens, "length of a tool description"},
    workload_parameter{"input_tokens", 4'000, 1, most_tokens, "mean of what a task adds to it"},
    workload_parameter{"step_tokens", 400, 1, most_tokens, "mean of what a request that is no repetition adds"}};

constexpr std::array scan_parameters{
    workload_parameter{"scan_rate", 2, 1e-3, 1e3, "requests a second of a batch, each of them once and never again"},
    workload_parameter{"scan_tokens", 8'000, 1, most_tokens, "mean length of these"},
    workload_parameter{"batch", 120, 1, most_seconds, "s that a batch takes"},
    workload_parameter{"pause", 360, 0, most_seconds, "s between two batches"}};

constexpr auto scans_parameters = [] {
  std::array<workload_parameter, chat_parameters.size() + scan_parameters.size()> all;
  std::ranges::copy(scan_parameters, std::ranges::copy(chat_parameters, all.begin()).out);
  return all;
}();

constexpr std::array loop_parameters{
    requests_parameter,
    seed_parameter,
    workload_parameter{"rate", 2, 1e-3, 1e3, "requests a second"},
    workload_parameter{"documents", 300, 1, 1e5, "documents that are asked about in turn, again and again"},
    workload_parameter{"document_tokens", 8'000, 1, most_tokens, "mean length of a document"},
    workload_parameter{"question_tokens", 300, 1, most_tokens, "mean length of a question, which comes once"},
    workload_parameter{"asked", 1, 1e-2, 1, "share of the documents that a round asks about"}};

constexpr std::array rag_parameters{
    requests_parameter,
    seed_parameter,
    workload_parameter{"rate", 2, 1e-3, 1e3, "requests a second"},
    workload_parameter{"corpus", 2'000, 1, 1e6, "passages that are asked about"},
    workload_parameter{"zipf", 0.9, 0, 4, "the n-th most popular passage is asked for with a weight of n^-zipf"},
    workload_parameter{"passages", 2, 1, 16, "passages of a request, one after the other"},
    workload_parameter{"passage_tokens", 1'500, 1, most_tokens, "mean length of a passage"},
    workload_parameter{"systems", 4, 1, 1e4, "system prompts, each as likely as the others"},
    workload_parameter{"system_tokens", 2'000, 0, most_tokens, "length of a system prompt"},
    workload_parameter{"question_tokens", 300, 1, most_tokens, "mean length of a question, which comes once"}};

constexpr std::array phases_parameters{
    requests_parameter, seed_parameter,
    workload_parameter{"phase", 500, 1, most_requests, "requests until another kind comes: chat, agents, rag, loop"}};

constexpr std::array kinds{
    workload_kind{"chat", "conversations of several turns, with shared system prompts", chat_parameters},
    workload_kind{"agents", "agents that repeat almost whole requests", agents_parameters},
    workload_kind{"scans", "chat beside batches of long prompts that come once", scans_parameters},
    workload_kind{"loop", "the same documents in turn, again and again", loop_parameters},
    workload_kind{"rag", "popular and rare passages before questions that come once", rag_parameters},
    workload_kind{"phases", "the other kinds in turn, each for some requests", phases_parameters}};

std::unexpected<error> refuse(std::string message) {
  return fail(error_code::invalid_argument, std::move(message));
}

template <class Items>
std::string names_of(const Items& items) {
  std::string list;
  for (const auto& each : items) list += (list.empty() ? "" : ", ") + std::string(each.name);
  return list;
}

/// A kind with a value for each of its parameters.
class settings {
 public:
  explicit settings(const workload_kind& kind) : kind_(&kind) {
    for (const workload_parameter& each : kind.parameters) values_.push_back(each.standard);
  }
  [[nodiscard]] const workload_kind& kind() const noexcept { return *kind_; }
  [[nodiscard]] bool has(std::string_view name) const noexcept { return place_of(name) < values_.size(); }
  /// 0 for what the kind does not have.
  [[nodiscard]] double operator[](std::string_view name) const noexcept {
    return has(name) ? values_[place_of(name)] : 0;
  }
  /// Takes "name=value".
  result<void> set(std::string_view text) {
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    const std::size_t place = place_of(name);
    if (place == values_.size()) {
      return refuse("`" + std::string(name) + "` is nothing that the workload `" + std::string(kind_->name) +
                    "` depends on; known: " + names_of(kind_->parameters));
    }
    const workload_parameter& parameter = kind_->parameters[place];
    const std::string_view number = equals == std::string_view::npos ? "" : text.substr(equals + 1);
    double value = 0;
    const auto [end, bad] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool sound = bad == std::errc() && end == number.data() + number.size();
    if (!sound || !(value >= parameter.minimum && value <= parameter.maximum)) {
      return refuse("`" + std::string(text) + "`: right is " + std::string(name) + "=N from " +
                    plain(parameter.minimum) + " to " + plain(parameter.maximum) + " (" +
                    std::string(parameter.meaning) + ")");
    }
    values_[place] = value;
    return {};
  }

 private:
  [[nodiscard]] std::size_t place_of(std::string_view name) const noexcept {
    const auto found = std::ranges::find(kind_->parameters, name, &workload_parameter::name);
    return static_cast<std::size_t>(found - kind_->parameters.begin());
  }
  [[nodiscard]] static std::string plain(double number) {
    constexpr std::size_t longest = 32;
    std::array<char, longest> text{};
    const auto done = std::to_chars(text.data(), text.data() + text.size(), number);
    return {text.data(), done.ptr};
  }

  const workload_kind* kind_;
  std::vector<double> values_;
};

result<settings> parse(std::string_view description) {
  const std::size_t colon = description.find(':');
  const std::string_view name = description.substr(0, colon);
  const auto kind = std::ranges::find(kinds, name, &workload_kind::name);
  if (kind == kinds.end()) {
    return refuse("unknown workload `" + std::string(name) + "`; known: " + names_of(kinds));
  }
  settings all(*kind);
  if (colon == std::string_view::npos) return all;
  for (std::string_view rest = description.substr(colon + 1);;) {
    const std::size_t comma = rest.find(',');
    if (auto done = all.set(rest.substr(0, comma)); !done) return std::unexpected(done.error());
    if (comma == std::string_view::npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

// ---------------------------------------------------------------------------------------------- parts of all kinds

/// The standard library's distributions differ between libraries; these do not.
class dice {
 public:
  explicit dice(double seed) : random_(static_cast<std::uint64_t>(seed)) {}
  /// In [0, 1).
  [[nodiscard]] double share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  [[nodiscard]] bool chance(double probability) { return share() < probability; }
  [[nodiscard]] std::size_t index_below(double n) { return static_cast<std::size_t>(share() * n); }
  /// Exponentially distributed.
  [[nodiscard]] double exponential(double mean) {
    constexpr double longest = 8;
    return mean * std::min(-std::log1p(-share()), longest);
  }
  [[nodiscard]] std::uint64_t tokens(double mean) { return 1 + static_cast<std::uint64_t>(exponential(mean)); }

 private:
  std::mt19937_64 random_;
};

/// A prompt that grows at its end, and the identities of its blocks. A block that is not full gets another identity
/// when it grows.
struct prompt {
  std::uint64_t tokens = 0;
  std::vector<std::uint64_t> ids;

  void grow(std::uint64_t amount, std::uint64_t& next_id) {
    if (amount == 0) return;
    if (tokens % trace::tokens_per_block != 0) ids.pop_back();
    tokens += amount;
    while (ids.size() * trace::tokens_per_block < tokens) ids.push_back(next_id++);
  }
};

/// Events in the order of time; of equal times, in the order in which they were planned.
template <class Item>
class agenda {
 public:
  void plan(double time, Item item) { events_.push({time, planned_++, item}); }
  /// Takes the next one; `now` becomes its time in seconds.
  Item next(double& now) {
    const event first = events_.top();
    events_.pop();
    now = first.time;
    return first.item;
  }

 private:
  struct event {
    double time = 0;
    std::uint64_t planned = 0;
    Item item;
    bool operator<(const event& other) const noexcept {
      return time != other.time ? time > other.time : planned > other.planned;
    }
  };
  std::priority_queue<event> events_;
  std::uint64_t planned_ = 0;
};

/// The parts of a generator of any kind.
struct maker {
  const settings& parameters;
  dice random{parameters["seed"]};
  std::uint64_t next_id = 1;
  std::vector<prompt> systems{};
  trace output{};

  explicit maker(const settings& all) : parameters(all), systems(static_cast<std::size_t>(all["systems"])) {
    for (prompt& each : systems) each.grow(static_cast<std::uint64_t>(parameters["system_tokens"]), next_id);
  }
  [[nodiscard]] bool done() const noexcept {
    return static_cast<double>(output.requests().size()) >= std::floor(parameters["requests"]);
  }
  [[nodiscard]] const prompt& a_system() { return systems[random.index_below(static_cast<double>(systems.size()))]; }
  void ask(double now, const prompt& question) {
    constexpr double ms = 1'000;
    output.add(static_cast<std::uint64_t>(now * ms), question.tokens, question.ids);
  }
};

// ---------------------------------------------------------------------------------------------- the kinds

/// Conversations, and batches of scans if the kind has them.
class chat : maker {
 public:
  explicit chat(const settings& all) : maker(all) {}

  trace run() {
    double now = 0;
    to_do_.plan(0, arrival);
    if (parameters.has("scan_rate")) to_do_.plan(parameters["pause"], scan);
    while (!done()) {
      const std::size_t what = to_do_.next(now);
      if (what == arrival) {
        begin(now);
      } else if (what == scan) {
        go_through(now);
      } else {
        take_turn(now, what);
      }
    }
    return std::move(output);
  }

 private:
  static constexpr std::size_t arrival = ~std::size_t{0};
  static constexpr std::size_t scan = arrival - 1;

  void begin(double now) {
    to_do_.plan(now + random.exponential(1 / parameters["rate"]), arrival);
    if (free_.empty()) {
      free_.push_back(talks_.size());
      talks_.emplace_back();
    }
    const std::size_t talk = free_.back();
    free_.pop_back();
    talks_[talk] = a_system();
    take_turn(now, talk);
  }
  void take_turn(double now, std::size_t talk) {
    prompt& of = talks_[talk];
    of.grow(random.tokens(parameters["input_tokens"]), next_id);
    ask(now, of);
    if (!random.chance(1 - 1 / parameters["turns"])) {
      free_.push_back(talk);
      return;
    }
    of.grow(random.tokens(parameters["answer_tokens"]), next_id);
    to_do_.plan(now + random.exponential(parameters["think"]), talk);
  }
  void go_through(double now) {
    prompt once;
    once.grow(random.tokens(parameters["scan_tokens"]), next_id);
    ask(now, once);
    if (batch_end_ < now) batch_end_ = now + parameters["batch"];
    const double next = now + random.exponential(1 / parameters["scan_rate"]);
    to_do_.plan(next < batch_end_ ? next : batch_end_ + parameters["pause"] + next - now, scan);
  }

  agenda<std::size_t> to_do_;
  std::vector<prompt> talks_;
  std::vector<std::size_t> free_;  ///< places in it
  double batch_end_ = -1;
};

class agents : maker {
 public:
  explicit agents(const settings& all) : maker(all), tasks_(static_cast<std::size_t>(all["agents"])) {}

  trace run() {
    double now = 0;
    for (std::size_t agent = 0; agent < tasks_.size(); ++agent) {
      to_do_.plan(random.exponential(parameters["think"]), agent);
    }
    while (!done()) {
      const std::size_t agent = to_do_.next(now);
      step(tasks_[agent]);
      ask(now, tasks_[agent]);
      to_do_.plan(now + random.exponential(parameters["think"]), agent);
    }
    return std::move(output);
  }

 private:
  void step(prompt& task) {
    if (task.tokens == 0 || random.chance(1 / parameters["steps"])) {
      task = a_system();
      task.grow(random.tokens(parameters["input_tokens"]), next_id);
    } else if (!random.chance(parameters["repeat"])) {
      task.grow(random.tokens(parameters["step_tokens"]), next_id);
    }
  }

  agenda<std::size_t> to_do_;
  std::vector<prompt> tasks_;
};

class loop : maker {
 public:
  explicit loop(const settings& all) : maker(all), documents_(static_cast<std::size_t>(all["documents"])) {
    for (prompt& each : documents_) each.grow(random.tokens(parameters["document_tokens"]), next_id);
  }

  trace run() {
    double now = 0;
    for (std::size_t at = 0; !done(); at = (at + 1) % documents_.size()) {
      if (!random.chance(parameters["asked"])) continue;
      prompt asked = documents_[at];
      asked.grow(random.tokens(parameters["question_tokens"]), next_id);
      ask(now, asked);
      now += random.exponential(1 / parameters["rate"]);
    }
    return std::move(output);
  }

 private:
  std::vector<prompt> documents_;
};

class rag : maker {
 public:
  explicit rag(const settings& all) : maker(all) {
    double sum = 0;
    const auto corpus = static_cast<std::size_t>(parameters["corpus"]);
    for (std::size_t n = 1; n <= corpus; ++n) {
      weights_.push_back(sum += std::pow(static_cast<double>(n), -parameters["zipf"]));
      lengths_.push_back(random.tokens(parameters["passage_tokens"]));
    }
  }

  trace run() {
    double now = 0;
    while (!done()) {
      const std::size_t system = random.index_below(static_cast<double>(systems.size()));
      std::vector<std::size_t> path{system};
      prompt asked = systems[system];
      const auto passages = static_cast<std::size_t>(parameters["passages"]);
      for (std::size_t n = 0; n < passages; ++n) asked = append_passage(asked, path);
      asked.grow(random.tokens(parameters["question_tokens"]), next_id);
      ask(now, asked);
      now += random.exponential(1 / parameters["rate"]);
    }
    return std::move(output);
  }

 private:
  /// `prefix` with a passage behind it: the same one behind the same path.
  prompt append_passage(prompt prefix, std::vector<std::size_t>& path) {
    const double drawn = random.share() * weights_.back();
    const auto passage = static_cast<std::size_t>(std::ranges::lower_bound(weights_, drawn) - weights_.begin());
    path.push_back(passage);
    const auto [known, fresh] = prompts_.try_emplace(path);
    if (fresh) {
      prefix.grow(lengths_[passage], next_id);
      known->second = std::move(prefix);
    }
    return known->second;
  }

  std::vector<double> weights_;  ///< sums of those up to there
  std::vector<std::uint64_t> lengths_;
  std::map<std::vector<std::size_t>, prompt> prompts_;
};

/// Kinds in turn; each time another seed, so that no phase repeats the prompts of another one.
trace make_phases(const settings& all) {
  constexpr std::array<std::string_view, 4> turns{"chat", "agents", "rag", "loop"};
  const auto wanted = static_cast<std::size_t>(all["requests"]);
  const auto length = static_cast<std::size_t>(all["phase"]);
  trace output;
  std::uint64_t first_id = 0;
  std::uint64_t start_ms = 0;
  for (std::size_t phase = 0; output.requests().size() < wanted; ++phase) {
    const std::size_t count = std::min(length, wanted - output.requests().size());
    const auto seed = static_cast<std::uint64_t>(all["seed"]) + phase;
    const trace part = *generate(std::string(turns[phase % turns.size()]) + ":requests=" + std::to_string(count) +
                                 ",seed=" + std::to_string(seed));
    for (const trace::entry& each : part.requests()) {
      auto ids = part.ids(each);
      for (std::uint64_t& id : ids) id += first_id;
      output.add(start_ms + each.time_ms, each.tokens, ids);
    }
    first_id += *std::ranges::max_element(part.identities()) + 1;
    start_ms = output.requests().back().time_ms;
  }
  return output;
}

}  // namespace

std::span<const workload_kind> workload_kinds() noexcept {
  return kinds;
}

result<trace> generate(std::string_view description) {
  const auto all = parse(description);
  if (!all) return std::unexpected(all.error());
  if (all->kind().name == "agents") return agents(*all).run();
  if (all->kind().name == "loop") return loop(*all).run();
  if (all->kind().name == "rag") return rag(*all).run();
  if (all->kind().name == "phases") return make_phases(*all);
  return chat(*all).run();
}

}  // namespace cenote::simulation
