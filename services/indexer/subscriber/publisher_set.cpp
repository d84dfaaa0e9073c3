// After each input the feeds' commands are carried out until there are none, so that they do not pile up.
#include "services/indexer/subscriber/publisher_set.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "config/logging.hpp"
#include "core/text.hpp"
#include "services/indexer/events/event_topic.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t most_topics = 256;  // of one endpoint
constexpr std::uint64_t shown_row = 100;  // bad messages, one behind the other, that are worth a line of the log

feed_time present_time() noexcept {
  return std::chrono::steady_clock::now();
}

feeds_options with_long_names(feeds_options options) noexcept {
  options.name_bytes =
      2 * publisher_limits::topic_bytes;  // lengths are checked before, here a lane's number comes with it
  return options;
}

bool is_same(const publisher_identity& one, const publisher_identity& other) noexcept {
  return one.pod == other.pod && one.model == other.model && one.kind == other.kind;
}

zmq::message_socket_options line_options(const subscriber_options& options) {
  zmq::message_socket_options made;
  made.receive_messages = options.replay_messages;
  made.message_bytes = static_cast<std::int64_t>(options.feed.batch_bytes);
  return made;
}

}  // namespace

publisher_set::publisher_set(const subscriber_options& options, batch_sink& sink, zmq::message_context context,
                             zmq::descriptor_poller& poller, token_maker line_token)
    : options_(options),
      sink_(sink),
      context_(std::move(context)),
      poller_(poller),
      line_token_(line_token),
      feeds_(with_long_names(options.feeds)) {}

// ---------------------------------------------------------------------------------------------- entries

result<publisher_entry*> publisher_set::add(const publisher_options& settings) {
  if (auto checked = check_publisher(settings); !checked) return std::unexpected(checked.error());
  auto made = std::make_unique<publisher_entry>();
  made->key = "publisher " + settings.name;
  made->settings = settings;
  made->replay = settings.replay;
  made->identity.name = settings.name;
  made->identity.endpoint = settings.endpoint;
  made->identity = identity_of(*made, {});
  auto added = insert(std::move(made));
  const bool is_fixed = !settings.pod.empty() && !settings.model.empty();
  if (added && is_fixed) open(**added);
  return added;
}

result<publisher_entry*> publisher_set::add(const lane_identity& lane, std::string_view topic) {
  if (auto checked = check_topic(topic); !checked) return std::unexpected(checked.error());
  const event_topic parts = parse_topic(topic);
  if (parts.pod.empty()) {
    return fail(error_code::invalid_argument, "the topic of a publisher at " + std::string(lane.endpoint) +
                                                  " names no pod; it has to be kv@POD@MODEL");
  }
  auto made = std::make_unique<publisher_entry>();
  made->key = "lane " + std::to_string(lane.lane) + " " + std::string(topic);
  made->lane = lane.lane;
  made->topic = topic;
  made->has_topic = true;
  const auto port = options_.replay_port == 0 ? 0U : options_.replay_port + lane.rank;
  const bool has_port = port != 0 && port <= 65'535;
  made->replay = replay_endpoint_of(parts.pod, static_cast<std::uint16_t>(has_port ? port : 0)).value_or("");
  if (has_port && made->replay.empty()) ++totals_.no_replay_hosts;
  made->identity.name = std::string(lane.endpoint) + "/" + std::string(topic);
  made->identity.endpoint = lane.endpoint;
  made->identity.rank = lane.rank;
  made->identity = identity_of(*made, topic);
  auto added = insert(std::move(made));
  if (added) open(**added);
  return added;
}

result<publisher_entry*> publisher_set::insert(std::unique_ptr<publisher_entry> entry) {
  entry->options = options_.feed;
  entry->options.kind = entry->identity.kind;
  entry->options.has_replay = !entry->replay.empty();
  const auto publisher = feeds_.obtain(entry->key, entry->options);
  if (!publisher) {
    ++totals_.refused_publishers;
    return std::unexpected(publisher.error());
  }
  entry->publisher = *publisher;
  entry->number = next_++;
  numbers_[*publisher] = entry->number;
  return entries_.emplace(entry->number, std::move(entry)).first->second.get();
}

void publisher_set::erase(entry_number number) {
  publisher_entry* const entry = find(number);
  if (entry == nullptr) return;
  const auto topics = std::exchange(entry->topics, {});
  for (const auto& [topic, each] : topics) erase(each);
  end_line(*entry);
  feeds_.erase(entry->publisher);
  numbers_.erase(entry->publisher);
  const publisher_id publisher = entry->publisher;
  const bool is_open = entry->is_open;
  entries_.erase(number);
  if (is_open) sink_.close(publisher);
  advance();  // another one may have its turn for a replay
}

publisher_entry* publisher_set::find(entry_number number) noexcept {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.get();
}

// ---------------------------------------------------------------------------------------------- inputs

void publisher_set::connected(publisher_entry& entry) {
  change_connection(entry, true);
}

void publisher_set::disconnected(publisher_entry& entry) {
  change_connection(entry, false);
}

/// Of the entry and of those that share its source.
void publisher_set::change_connection(publisher_entry& entry, bool is_connected) {
  std::vector<entry_number> all{entry.number};
  for (const auto& [topic, number] : entry.topics) all.push_back(number);
  for (const entry_number each : all) {
    publisher_entry& changed = *entries_.at(each);
    changed.is_connected = is_connected;
    const feed_time now = present_time();
    feeds_.change(changed.publisher, now,
                  [&](feed& one) { is_connected ? one.connected(now) : one.disconnected(now); });
    carry_out();
  }
}

void publisher_set::live(publisher_entry& entry, const wire_batch& batch, zmq::multipart_message& message) {
  ++totals_.batches;
  totals_.bytes += message.part(batch.payload).size();
  publisher_entry* const target = entry_of(entry, batch.topic);
  if (target == nullptr || !identify(*target, batch.topic)) {
    ++totals_.foreign;
    return malformed(entry);
  }
  entry.malformed_row = 0;
  auto [bytes, owner] = zmq::share(std::move(message.part(batch.payload)));
  batch_payload whole{.bytes = bytes, .owner = std::move(owner)};
  const feed_time now = present_time();
  feeds_.change(target->publisher, now, [&](feed& one) { one.live(batch.seq, std::move(whole), now); });
  carry_out();
}

void publisher_set::answer(publisher_entry& entry, zmq::multipart_message& message) {
  const feed_ask question = entry.line->question();
  const auto batch = answer_of(message);
  if (!batch) return malformed(entry);
  zmq::message_part& payload = message.part(batch->payload);
  const bool has_topic = batch->has_topic && batch->seq != end_number;
  const bool is_last = is_end(*batch, payload.size(), question.kind);
  if (has_topic && (!is_last || !batch->topic.empty())) {
    publisher_entry* const target = entry_of(primary_of(entry), batch->topic);
    if (target != nullptr && target != &entry) return;  // it asks for its own
    if (target == nullptr || !identify(entry, batch->topic)) {
      ++totals_.foreign;
      entry.line->note_foreign();
      return malformed(entry);
    }
    if (!entry.line) return carry_out();  // its identity is another one, and all is asked for again
  }
  if (is_last) return end_answer(entry, *batch);
  entry.line->note_batch(batch->seq);
  auto [bytes, owner] = zmq::share(std::move(payload));
  batch_payload whole{.bytes = bytes, .owner = std::move(owner)};
  const feed_time now = present_time();
  feeds_.change(entry.publisher, now, [&](feed& one) {
    if (question.kind == replay_kind::snapshot) return one.snapshot_frame(question.number, std::move(whole), now);
    one.replay_frame(question.number, batch->seq, std::move(whole), now);
  });
  carry_out();
}

void publisher_set::end_answer(publisher_entry& entry, const wire_batch& end) {
  const feed_ask question = entry.line->question();
  const bool is_foreign = entry.line->is_foreign();
  std::uint64_t next = end.seq;
  // An engine's snapshot may end as a replay does; then each of its batches has the number.
  if (next == end_number) next = entry.line->last_number().value_or(end_number);
  const feed_time now = present_time();
  feeds_.change(entry.publisher, now, [&](feed& one) {
    if (is_foreign) return one.replay_failed(question.number, now);  // it shows nothing of this publisher
    if (question.kind == replay_kind::snapshot) return one.snapshot_end(question.number, next, now);
    one.replay_end(question.number, now);
  });
  carry_out();
}

void publisher_set::refused(publisher_entry& entry) {
  const std::uint64_t number = entry.line->question().number;
  const feed_time now = present_time();
  feeds_.change(entry.publisher, now, [&](feed& one) { one.replay_failed(number, now); });
  carry_out();
}

void publisher_set::malformed(publisher_entry& entry) {
  ++totals_.malformed;
  ++entry.malformed;
  if (++entry.malformed_row < shown_row || std::exchange(entry.is_shown, true)) return;
  log_warn(logger("indexer"), "a publisher sends what is no batch of its own",
           {{"publisher", printable(entry.identity.name)},
            {"endpoint", printable(entry.identity.endpoint)},
            {"in_a_row", entry.malformed_row}});
}

void publisher_set::reopen(publisher_id publisher) {
  const auto found = numbers_.find(publisher);
  if (found == numbers_.end()) return;
  renew(*entries_.at(found->second));
  carry_out();
}

void publisher_set::advance() {
  feeds_.advance(present_time());
  carry_out();
}

// ---------------------------------------------------------------------------------------------- identities

publisher_entry& publisher_set::primary_of(publisher_entry& entry) {
  return entry.primary == 0 ? entry : *entries_.at(entry.primary);
}

/// The entry for a topic of a source. An engine numbers all its batches in one row, so that another topic is another
/// life of it; a node has a row for each topic, and so an entry. Null: it may have no more.
publisher_entry* publisher_set::entry_of(publisher_entry& primary, std::string_view topic) {
  const bool is_only = primary.is_bound() || !primary.has_topic || primary.topic == topic;
  if (is_only || primary.options.kind != publisher_kind::node) return &primary;
  if (const auto found = primary.topics.find(topic); found != primary.topics.end()) return find(found->second);
  if (!check_topic(topic) || identity_of(primary, topic).kind != publisher_kind::node) return &primary;
  if (primary.topics.size() >= most_topics) return nullptr;
  auto made = std::make_unique<publisher_entry>();
  made->key = primary.key + " " + std::string(topic);
  made->settings = primary.settings;
  made->replay = primary.replay;
  made->primary = primary.number;
  made->topic = topic;
  made->has_topic = true;
  made->identity = primary.identity;
  made->identity.name += "/" + std::string(topic);
  made->identity = identity_of(*made, topic);
  const auto added = insert(std::move(made));
  if (!added) return nullptr;
  primary.topics.emplace(topic, (*added)->number);
  open(**added);
  if (primary.is_connected) change_connection(**added, true);
  return *added;
}

publisher_identity publisher_set::identity_of(const publisher_entry& entry, std::string_view topic) const {
  publisher_identity made = entry.identity;
  made.pod.clear();
  made.model.clear();
  made.engine = options_.engine;
  if (entry.settings) {
    const publisher_options& settings = *entry.settings;
    made.pod = settings.pod;
    made.model = settings.model;
    made.node = settings.node;
    made.engine = settings.engine;
  }
  complete_identity(made, topic);
  if (entry.settings && entry.settings->clear) made.clear = *entry.settings->clear;
  return made;
}

/// False: the batch is not this publisher's. A topic that names another pod or model makes it another publisher, but
/// not again and again.
bool publisher_set::identify(publisher_entry& entry, std::string_view topic) {
  if (entry.has_topic && entry.topic == topic) return true;
  if (entry.is_bound() || !check_topic(topic)) return false;
  publisher_identity made = identity_of(entry, topic);
  const bool has_changed = !is_same(made, entry.identity);
  const feed_time now = present_time();
  if (has_changed && entry.has_topic) {
    if (entry.identified_at && now - *entry.identified_at < options_.identity_pause) return false;
    entry.identified_at = now;
    ++totals_.identity_changes;
  }
  const bool is_of_other_kind = made.kind != entry.options.kind;
  entry.topic = topic;
  entry.has_topic = true;
  if (!has_changed) {
    open(entry);
    return true;
  }
  entry.identity = std::move(made);
  if (entry.is_open || is_of_other_kind) renew(entry);
  open(entry);
  return true;
}

/// A new publisher in the place of one whose identity is another, or that had no place.
void publisher_set::renew(publisher_entry& entry) {
  end_line(entry);
  feeds_.erase(entry.publisher);
  numbers_.erase(entry.publisher);
  if (std::exchange(entry.is_open, false)) sink_.close(entry.publisher);
  entry.mark = {};
  entry.options.kind = entry.identity.kind;
  entry.publisher = feeds_.obtain(entry.key, entry.options).value_or(0);  // its place is free
  numbers_[entry.publisher] = entry.number;
  open(entry);
  if (!entry.is_connected) return;
  const feed_time now = present_time();
  feeds_.change(entry.publisher, now, [now](feed& one) { one.connected(now); });
}

void publisher_set::open(publisher_entry& entry) {
  if (std::exchange(entry.is_open, true)) return;
  sink_.open(entry.publisher, entry.identity);
  if (entry.mark != feed_mark{}) sink_.mark(entry.publisher, entry.mark);
}

void publisher_set::end_line(publisher_entry& entry) {
  entry.line.reset();
  lines_.erase(entry.number);
}

// ---------------------------------------------------------------------------------------------- commands

void publisher_set::carry_out() {
  for (;;) {
    const auto commands = feeds_.take_commands();
    if (commands.empty()) return;
    for (const publisher_command& each : commands) {
      const auto number = numbers_.find(each.publisher);
      if (number == numbers_.end()) continue;
      publisher_entry& entry = *entries_.at(number->second);
      std::visit([&](const auto& command) { perform(entry, command); }, each.command);
    }
  }
}

void publisher_set::perform(publisher_entry& entry, const feed_apply& command) {
  open(entry);
  const batch_effect effect = sink_.apply(entry.publisher, entry.topic, command);
  if (!effect.is_all_cleared && !effect.is_parent_unknown && !effect.is_unread) return;
  const feed_time now = present_time();
  feeds_.change(entry.publisher, now, [&](feed& one) {
    if (effect.is_all_cleared) one.all_cleared(command.turn, now);
    if (effect.is_unread) one.unread(now);
    if (effect.is_parent_unknown) one.unknown_parent(now);
  });
}

void publisher_set::perform(publisher_entry& entry, const feed_clear& command) {
  if (entry.is_open) sink_.clear(entry.publisher, command.reason);
}

void publisher_set::perform(publisher_entry& entry, const feed_ask& command) {
  end_line(entry);
  // An engine takes a request with a topic for none. A node is asked for all once in a while, to learn its topics.
  const bool learns_topics = !entry.is_bound() && entry.primary == 0 && command.kind != replay_kind::check;
  const bool names_topic = entry.options.kind == publisher_kind::node && entry.has_topic && !learns_topics;
  auto line = replay_line::open(context_, poller_, line_token_(entry.number), line_options(options_), entry.replay,
                                command, names_topic ? std::string_view(entry.topic) : std::string_view());
  if (!line) {
    ++totals_.refused_replays;
    const feed_time now = present_time();
    feeds_.change(entry.publisher, now, [&](feed& one) { one.replay_failed(command.number, now); });
    return;
  }
  entry.line.emplace(std::move(*line));
  lines_.insert(entry.number);
}

void publisher_set::perform(publisher_entry& entry, const feed_stop& command) {
  if (entry.line && entry.line->question().number == command.number) end_line(entry);
}

void publisher_set::perform(publisher_entry& entry, const feed_mark& command) {
  entry.mark = command;
  if (entry.is_open) sink_.mark(entry.publisher, command);
}

// ---------------------------------------------------------------------------------------------- figures

publisher_table publisher_set::table() const {
  publisher_table made;
  made.time = present_time();
  made.totals = totals_;
  made.refusals = feeds_.counters();
  made.replays = feeds_.replays();
  made.unready = feeds_.unready();
  made.waiting_bytes = feeds_.waiting_bytes();
  made.rows.reserve(entries_.size());
  for (const auto& [number, entry] : entries_) {
    publisher_row& row = made.rows.emplace_back();
    row.publisher = entry->publisher;
    row.identity = entry->identity;
    row.is_bound = entry->is_bound();
    row.is_open = entry->is_open;
    row.malformed = entry->malformed;
    row.malformed_row = entry->malformed_row;
    const feed* const batches = feeds_.feed_of(entry->publisher);
    if (batches == nullptr) continue;
    row.mark = batches->mark();
    row.last_seq = batches->last_applied();
    row.counters = batches->counters();
    row.waiting_bytes = batches->waiting_bytes();
    row.behind_s = batches->behind_s(made.time);
  }
  return made;
}

}  // namespace cenote::indexer
