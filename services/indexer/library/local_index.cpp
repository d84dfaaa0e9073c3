// Joins feeds, decoders, the placer and the index. What the feeds decide is carried out until nothing is left to do.
#include "services/indexer/library/local_index.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <new>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "core/text.hpp"
#include "services/indexer/feed/feeds.hpp"
#include "services/indexer/placement/payload_placer.hpp"

namespace cenote::indexer {

namespace {

constexpr std::chrono::milliseconds tick{100};
constexpr std::chrono::hours no_checks{24 * 365};  // a program looks after its connections itself

feeds_options feeds_options_of(const local_index_options& options) {
  feeds_options made;
  made.publishers = options.publishers;
  made.name_bytes = publisher_limits::topic_bytes;
  made.replays = made.doubtful_replays = made.slow_replays = options.publishers;  // the program's to bound
  return made;
}

feed_options feed_options_of(const local_index_options& options) {
  feed_options made = options.feed;
  made.has_replay = options.replays != replay_source::none;
  made.rules.takes_snapshots = made.rules.takes_snapshots && options.replays == replay_source::snapshots;
  made.quiet = made.longest_quiet = no_checks;
  return made;
}

result<medium_weights> weights_of(const local_index_options& options, holder_table& holders) {
  medium_weights made;
  if (options.weights.empty()) return made;
  made.of_medium = {};
  for (const auto& [name, weight] : options.weights) {
    const auto medium = holders.medium_of(name);
    if (!medium || !std::isfinite(weight) || weight < 0) {
      return fail(error_code::invalid_argument,
                  "the weight of `" + name + "` is none: a medium has 1 to 31 bytes, up to " +
                      std::to_string(most_media) + " media have weights, and a weight is 0 or more");
    }
    made.of_medium[*medium] = weight;
  }
  return made;
}

/// A batch that outlives the call: it may have to wait.
batch_payload copy_of(std::span<const std::byte> payload) {
  auto bytes = std::make_shared<std::vector<std::byte>>(payload.begin(), payload.end());
  const std::span<const std::byte> view(*bytes);
  return {.bytes = view, .owner = std::move(bytes)};
}

}  // namespace

/// All that a move of the index must not move.
class local_index::index_parts {
 public:
  explicit index_parts(const local_index_options& options)
      : processor(token_processor::seeded(options.key, options.seed)),
        index(forest_options_for(options.memory)),
        reader(prefix_reader::open(index)),
        payloads_(index, processor, options.block_tokens),
        feeds_(feeds_options_of(options)),
        feed_options_(feed_options_of(options)),
        engine_(options.engine),
        memory_(options.memory) {}

  [[nodiscard]] result<void> open(std::string_view topic, const topic_settings& settings, feed_time now);
  bool close(std::string_view topic, feed_time now);
  [[nodiscard]] result<feed_outcome> live(std::string_view topic, std::uint64_t seq, std::span<const std::byte> payload,
                                          feed_time now);
  /// `input(feed&, is_snapshot)` is about the topic's open question `ask`.
  template <class Input>
  [[nodiscard]] result<feed_outcome> answer(std::string_view topic, std::uint64_t ask, feed_time now, Input&& input);
  void advance(feed_time now);
  void tick_at(feed_time now) {
    if (now >= next_tick_) advance(now);
  }
  void visit_pods(const std::function<void(const local_pod&)>& visit);
  [[nodiscard]] local_figures figures() const;
  [[nodiscard]] std::optional<topic_ask> next_ask();
  [[nodiscard]] placer& blocks() noexcept { return payloads_.blocks(); }

  token_processor processor;
  forest index;
  std::optional<prefix_reader> reader;  ///< of the thread that feeds
  medium_weights weights;

 private:
  /// A topic that is open.
  struct topic_entry {
    std::string topic{};
    publisher_id publisher = 0;
    publisher_identity identity{};
    feed_mark mark{};
    std::optional<replay_ask> ask{};  ///< the question that is open
    std::uint64_t next = 0;           ///< behind the newest live batch
  };
  /// The call under way.
  struct present_call {
    publisher_id publisher = 0;
    std::optional<std::uint64_t> seq{};
    feed_outcome outcome{};
  };

  [[nodiscard]] publisher_identity identity_of(std::string_view topic, const topic_settings& settings) const;
  [[nodiscard]] topic_entry* find(std::string_view topic) noexcept;
  void begin(const topic_entry& entry, std::optional<std::uint64_t> seq);
  [[nodiscard]] feed_outcome finish(topic_entry& entry, const feed_counters& earlier, batch_fate fate);
  [[nodiscard]] bool is_whole_life(const topic_entry& entry, std::uint64_t seq) const noexcept;
  void answer_with(const topic_entry& entry, const batch_payload& payload, feed_time now);
  void carry_out(feed_time now);
  void perform(topic_entry& entry, const feed_apply& command, feed_time now);
  void perform(topic_entry& entry, const feed_clear& command, feed_time now);
  void perform(topic_entry& entry, const feed_ask& command, feed_time now);
  void perform(topic_entry& entry, const feed_stop& command, feed_time now);
  void perform(topic_entry& entry, const feed_mark& command, feed_time now);

  payload_placer payloads_;
  feeds feeds_;
  feed_options feed_options_;
  event_engine engine_;
  std::size_t memory_;
  std::map<std::string, topic_entry, std::less<>> topics_;
  std::unordered_map<publisher_id, topic_entry*> entries_;
  present_call present_;
  std::set<publisher_id> unasked_;  ///< whose open question was not given yet
  feed_time next_tick_{};
};

// ---------------------------------------------------------------------------------------------- topics

publisher_identity local_index::index_parts::identity_of(std::string_view topic, const topic_settings& settings) const {
  publisher_identity made{.name = std::string(topic),
                          .pod = settings.pod,
                          .model = settings.model,
                          .node = settings.node,
                          .engine = settings.engine.value_or(engine_)};
  complete_identity(made, topic);
  if (settings.clear) made.clear = *settings.clear;
  return made;
}

local_index::index_parts::topic_entry* local_index::index_parts::find(std::string_view topic) noexcept {
  const auto found = topics_.find(topic);
  return found == topics_.end() ? nullptr : &found->second;
}

result<void> local_index::index_parts::open(std::string_view topic, const topic_settings& settings, feed_time now) {
  if (auto checked = check_topic(topic); !checked) return checked;
  for (const std::string* const name : {&settings.pod, &settings.model, &settings.node}) {
    if (auto checked = check_name("a name of a topic's settings", *name, publisher_limits::name_bytes); !checked)
      return checked;
  }
  publisher_identity identity = identity_of(topic, settings);
  if (const topic_entry* const present = find(topic)) {
    const publisher_identity& other = present->identity;
    const bool is_same = other.pod == identity.pod && other.model == identity.model && other.node == identity.node &&
                         other.engine == identity.engine && other.clear == identity.clear;
    if (is_same) return {};
    return fail(error_code::spec_mismatch,
                "topic `" + std::string(topic) + "` is open with other settings; close it first");
  }
  feed_options options = feed_options_;
  options.kind = identity.kind;
  const auto publisher = feeds_.obtain(topic, options);
  if (!publisher) return std::unexpected(publisher.error());
  if (auto opened = payloads_.open(*publisher, identity); !opened) {
    feeds_.erase(*publisher);
    return opened;
  }
  topic_entry& added = topics_[std::string(topic)];
  added.topic = topic;
  added.publisher = *publisher;
  added.identity = std::move(identity);
  entries_.emplace(*publisher, &added);
  // A moment ago: the question of the first batch is no reason for the next one to wait.
  const feed_time earlier = now - options.first_pause;
  feeds_.change(*publisher, earlier, [earlier](indexer::feed& one) { one.connected(earlier); });
  carry_out(now);
  payloads_.blocks().advance(now);
  return {};
}

bool local_index::index_parts::close(std::string_view topic, feed_time now) {
  const auto found = topics_.find(topic);
  if (found == topics_.end()) return false;
  const publisher_id publisher = found->second.publisher;
  payloads_.close(publisher);
  feeds_.erase(publisher);
  entries_.erase(publisher);
  unasked_.erase(publisher);
  topics_.erase(found);
  advance(now);
  return true;
}

// ---------------------------------------------------------------------------------------------- batches

void local_index::index_parts::begin(const topic_entry& entry, std::optional<std::uint64_t> seq) {
  present_ = {.publisher = entry.publisher, .seq = seq, .outcome = {.fate = batch_fate::late}};
}

/// The outcome of the call: what was not applied shows in the feed's counters, else it is `otherwise`.
feed_outcome local_index::index_parts::finish(topic_entry& entry, const feed_counters& earlier, batch_fate fate) {
  feed_outcome made = std::exchange(present_, {}).outcome;
  const feed_counters& after = feeds_.feed_of(entry.publisher)->counters();
  if (made.fate == batch_fate::late) {
    const bool is_dropped = after.refused != earlier.refused || after.dropped_bytes != earlier.dropped_bytes;
    const bool is_repeated = after.doubles != earlier.doubles && made.applied == 0;
    made.fate = is_dropped ? batch_fate::dropped : is_repeated ? batch_fate::repeated : fate;
  }
  if (unasked_.erase(entry.publisher) != 0) made.ask = entry.ask;
  made.state = entry.mark.state;
  return made;
}

/// Number 0 with nothing before it is all that its publisher has: no one has to be asked.
bool local_index::index_parts::is_whole_life(const topic_entry& entry, std::uint64_t seq) const noexcept {
  const bool asks_for_all = entry.ask && !entry.ask->is_snapshot && entry.ask->start == 0;
  return seq == 0 && asks_for_all && unasked_.contains(entry.publisher) &&
         !feeds_.feed_of(entry.publisher)->last_applied();
}

void local_index::index_parts::answer_with(const topic_entry& entry, const batch_payload& payload, feed_time now) {
  const std::uint64_t number = entry.ask->number;
  feeds_.change(entry.publisher, now, [&](indexer::feed& one) {
    one.replay_frame(number, 0, payload, now);
    one.replay_end(number, now);
  });
  carry_out(now);
}

result<feed_outcome> local_index::index_parts::live(std::string_view topic, std::uint64_t seq,
                                                    std::span<const std::byte> payload, feed_time now) {
  topic_entry* entry = find(topic);
  if (entry == nullptr) {
    if (auto opened = open(topic, {}, now); !opened) return std::unexpected(opened.error());
    entry = find(topic);
  }
  const indexer::feed& batches = *feeds_.feed_of(entry->publisher);
  const feed_counters before = batches.counters();
  begin(*entry, seq);
  const batch_payload kept = copy_of(payload);
  const bool fits = payload.size() <= feed_options_.batch_bytes;
  if (fits && is_whole_life(*entry, seq) && batches.waiting_bytes() == 0) {
    answer_with(*entry, kept, now);
  } else {
    feeds_.change(entry->publisher, now, [&](indexer::feed& one) { one.live(seq, kept, now); });
    carry_out(now);
    const bool is_new_life = batches.counters().restarts != before.restarts;  // nothing else waits then
    if (fits && is_new_life && is_whole_life(*entry, seq)) answer_with(*entry, kept, now);
  }
  if (seq != end_number) {
    if (seq > entry->next) {
      present_.outcome.missing_first = entry->next;
      present_.outcome.missing = seq - entry->next;
    }
    entry->next = seq + 1;
  }
  return finish(*entry, before, batch_fate::waiting);
}

template <class Input>
result<feed_outcome> local_index::index_parts::answer(std::string_view topic, std::uint64_t ask, feed_time now,
                                                      Input&& input) {
  topic_entry* const entry = find(topic);
  if (entry == nullptr) {
    return fail(error_code::invalid_argument, "topic `" + std::string(topic) + "` is not open");
  }
  const feed_counters before = feeds_.feed_of(entry->publisher)->counters();
  begin(*entry, std::nullopt);
  const bool is_open = entry->ask && entry->ask->number == ask;
  if (is_open) {
    const bool is_snapshot = entry->ask->is_snapshot;
    feeds_.change(entry->publisher, now, [&](indexer::feed& one) { input(one, is_snapshot); });
    carry_out(now);
  }
  if (const auto last = feeds_.feed_of(entry->publisher)->last_applied())
    entry->next = std::max(entry->next, *last + 1);
  return finish(*entry, before, is_open ? batch_fate::repeated : batch_fate::late);
}

// ---------------------------------------------------------------------------------------------- decisions

void local_index::index_parts::carry_out(feed_time now) {
  for (;;) {
    const auto commands = feeds_.take_commands();
    if (commands.empty()) return;
    for (const publisher_command& each : commands) {
      const auto found = entries_.find(each.publisher);
      if (found == entries_.end()) continue;
      std::visit([&](const auto& command) { perform(*found->second, command, now); }, each.command);
    }
  }
}

void local_index::index_parts::perform(topic_entry& entry, const feed_apply& command, feed_time now) {
  const batch_effect effect = payloads_.apply(entry.publisher, entry.topic, command.payload.bytes);
  if (present_.publisher == entry.publisher) {
    feed_outcome& outcome = present_.outcome;
    ++outcome.applied;
    const bool is_present = !present_.seq || command.seq == *present_.seq;
    if (is_present && outcome.fate != batch_fate::unreadable) {
      outcome.fate = effect.is_unread ? batch_fate::unreadable : batch_fate::applied;
    }
  }
  if (!effect.is_all_cleared && !effect.is_parent_unknown && !effect.is_unread) return;
  feeds_.change(entry.publisher, now, [&](indexer::feed& one) {
    if (effect.is_all_cleared) one.all_cleared(command.turn, now);
    if (effect.is_unread) one.unread(now);
    if (effect.is_parent_unknown) one.unknown_parent(now);
  });
}

void local_index::index_parts::perform(topic_entry& entry, const feed_clear& command, feed_time /*now*/) {
  payloads_.blocks().clear(entry.publisher);
  if (present_.publisher == entry.publisher) present_.outcome.cleared = command.reason;
}

void local_index::index_parts::perform(topic_entry& entry, const feed_ask& command, feed_time /*now*/) {
  entry.ask = {.number = command.number, .start = command.start, .is_snapshot = command.kind == replay_kind::snapshot};
  unasked_.insert(entry.publisher);
}

void local_index::index_parts::perform(topic_entry& entry, const feed_stop& command, feed_time /*now*/) {
  if (!entry.ask || entry.ask->number != command.number) return;
  entry.ask.reset();
  unasked_.erase(entry.publisher);
}

void local_index::index_parts::perform(topic_entry& entry, const feed_mark& command, feed_time /*now*/) {
  entry.mark = command;
  payloads_.blocks().mark(entry.publisher, {.is_hidden = !command.is_in_answers, .is_degraded = command.is_degraded});
}

std::optional<topic_ask> local_index::index_parts::next_ask() {
  if (unasked_.empty()) return std::nullopt;
  const topic_entry& entry = *entries_.at(*unasked_.begin());
  unasked_.erase(unasked_.begin());
  return topic_ask{.topic = entry.topic, .ask = *entry.ask};
}

void local_index::index_parts::advance(feed_time now) {
  next_tick_ = now + tick;
  feeds_.advance(now);
  carry_out(now);
  payloads_.set_clock(now);
  payloads_.blocks().advance(now);
  payloads_.sweep();
}

// ---------------------------------------------------------------------------------------------- figures

void local_index::index_parts::visit_pods(const std::function<void(const local_pod&)>& visit) {
  std::multimap<std::pair<std::string_view, std::string_view>, const topic_entry*> publishers;
  for (const auto& [topic, entry] : topics_) {
    publishers.emplace(std::pair<std::string_view, std::string_view>(entry.identity.pod, entry.identity.model), &entry);
  }
  reader->visit_pods([&](const pod_rank& member, std::string_view model, const auto& blocks) {
    const auto found = publishers.find({member.pod(), model});
    if (found == publishers.end()) return;
    const topic_entry& entry = *found->second;
    const indexer::feed& batches = *feeds_.feed_of(entry.publisher);
    visit({.pod = member.pod(),
           .dp_rank = member.rank,
           .model = model,
           .topic = entry.topic,
           .state = entry.mark.state,
           .last_seq = batches.last_applied(),
           .blocks = blocks,
           .counters = batches.counters()});
  });
}

local_figures local_index::index_parts::figures() const {
  return {.events = payloads_.counters(),
          .bad_batches = payloads_.bad_batches(),
          .publishers = topics_.size(),
          .memory = memory_,
          .index = index.figures()};
}

// ---------------------------------------------------------------------------------------------- the index

local_index::local_index(std::unique_ptr<index_parts> parts) noexcept : parts_(std::move(parts)) {}
local_index::local_index(local_index&&) noexcept = default;
local_index& local_index::operator=(local_index&&) noexcept = default;
local_index::~local_index() = default;

result<local_index> local_index::make(const local_index_options& options) {
  if (options.memory < forest::least_memory) {
    return fail(error_code::invalid_argument, "an index of " + std::to_string(options.memory) +
                                                  " bytes is too small; it has " +
                                                  std::to_string(forest::least_memory) + " at least");
  }
  std::unique_ptr<index_parts> made;
  try {
    made = std::make_unique<index_parts>(options);
  } catch (const std::bad_alloc&) {
    return fail(error_code::limit_exceeded,
                "there are no " + std::to_string(options.memory) + " bytes for an index, or they are too few for one");
  }
  auto weights = weights_of(options, made->index.holders());
  if (!weights) return std::unexpected(weights.error());
  made->weights = *weights;
  return local_index(std::move(made));
}

result<feed_outcome> local_index::feed(std::string_view topic, std::uint64_t seq, std::span<const std::byte> payload,
                                       feed_time now) {
  parts_->tick_at(now);
  return parts_->live(topic, seq, payload, now);
}

result<feed_outcome> local_index::replay(std::string_view topic, std::uint64_t ask, std::uint64_t seq,
                                         std::span<const std::byte> payload, feed_time now) {
  return parts_->answer(topic, ask, now, [&](indexer::feed& one, bool is_snapshot) {
    if (is_snapshot) return one.snapshot_frame(ask, copy_of(payload), now);
    one.replay_frame(ask, seq, copy_of(payload), now);
  });
}

result<feed_outcome> local_index::end_replay(std::string_view topic, std::uint64_t ask, std::uint64_t next,
                                             feed_time now) {
  return parts_->answer(topic, ask, now, [&](indexer::feed& one, bool is_snapshot) {
    if (is_snapshot) return one.snapshot_end(ask, next, now);
    one.replay_end(ask, now);
  });
}

result<feed_outcome> local_index::fail_replay(std::string_view topic, std::uint64_t ask, feed_time now) {
  return parts_->answer(topic, ask, now, [&](indexer::feed& one, bool) { one.replay_failed(ask, now); });
}

std::optional<topic_ask> local_index::next_ask(feed_time now) {
  parts_->tick_at(now);
  return parts_->next_ask();
}

result<void> local_index::open(std::string_view topic, const topic_settings& settings, feed_time now) {
  return parts_->open(topic, settings, now);
}

bool local_index::close(std::string_view topic, feed_time now) {
  return parts_->close(topic, now);
}

result<bool> local_index::clear(std::string_view pod, std::string_view medium, feed_time now) {
  if (!parts_->reader->has_pod(pod)) return false;
  if (!parts_->reader->has_medium(medium))
    return fail(error_code::invalid_argument, "no pod has blocks in `" + std::string(medium) + "`");
  (void)parts_->blocks().clear(pod, medium);
  parts_->advance(now);
  return true;
}

void local_index::advance(feed_time now) {
  parts_->advance(now);
}

void local_index::pods(const std::function<void(const local_pod&)>& visit) {
  parts_->visit_pods(visit);
}

local_figures local_index::figures() const {
  return parts_->figures();
}

result<scorer> local_index::open_scorer() {
  auto made = scorer::open(parts_->index, parts_->processor);
  if (!made) {
    return fail(error_code::limit_exceeded, "the index has " + std::to_string(epoch_table::most_readers) +
                                                " readers, which is the most; end one first");
  }
  made->set_weights(parts_->weights);
  return std::move(*made);
}

}  // namespace cenote::indexer
