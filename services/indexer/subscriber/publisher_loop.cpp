// Sockets that have more than a turn's messages stay in the queue; the others come back when they are readable.
#include "services/indexer/subscriber/publisher_loop.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cenote::indexer {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_connections = 8;     // by which one publisher's batches come at a time
constexpr std::size_t all_sockets = 1'000'000;  // cut to the library's own limit

/// Numbers of entries and places of lanes as tokens.
enum class source_kind : std::uint8_t { wake, source, line, lane };

constexpr zmq::descriptor_poller::token token_of(source_kind kind, std::uint64_t number) noexcept {
  return number << 2U | static_cast<std::uint64_t>(kind);
}

zmq::descriptor_poller::token line_token(entry_number number) {
  return token_of(source_kind::line, number);
}

feed_time round_time() noexcept {
  return std::chrono::steady_clock::now();
}

zmq::message_socket_options live_options(const subscriber_options& options) {
  zmq::message_socket_options made;
  made.receive_messages = options.live_messages;
  made.message_bytes = static_cast<std::int64_t>(options.feed.batch_bytes);
  return made;
}

}  // namespace

result<std::unique_ptr<publisher_loop>> publisher_loop::make(const subscriber_options& options, batch_sink& sink,
                                                             int wake) {
  const auto places = bound_endpoints_of(options);
  if (!places) return std::unexpected(places.error());
  auto live = zmq::message_context::make(all_sockets);
  if (!live) return std::unexpected(live.error());
  // Names of pods are resolved on the library's thread: a slow one delays replays only.
  auto replays = zmq::message_context::make(all_sockets);
  if (!replays) return std::unexpected(replays.error());
  auto poller = zmq::descriptor_poller::make();
  if (!poller) return std::unexpected(poller.error());
  std::unique_ptr<publisher_loop> made(
      new publisher_loop(options, sink, std::move(*live), std::move(*replays), std::move(*poller)));
  auto watch = made->poller_.add(wake, token_of(source_kind::wake, 0));
  if (!watch) return std::unexpected(watch.error());
  made->watches_.push_back(std::move(*watch));
  for (const ranked_endpoint& each : *places) {
    if (auto bound = made->bind(each); !bound) return std::unexpected(bound.error());
  }
  return made;
}

publisher_loop::publisher_loop(const subscriber_options& options, batch_sink& sink, zmq::message_context live,
                               zmq::message_context replays, zmq::descriptor_poller poller)
    : options_(options),
      sink_(sink),
      live_context_(std::move(live)),
      poller_(std::move(poller)),
      publishers_(options, sink, std::move(replays), poller_, line_token) {}

publisher_loop::~publisher_loop() = default;

result<void> publisher_loop::bind(const ranked_endpoint& place) {
  const token name = token_of(source_kind::lane, lanes_.size());
  auto source = message_source::open(live_context_, poller_, name, live_options(options_));
  if (!source) return std::unexpected(source.error());
  if (auto subscribed = source->socket().subscribe(options_.topic); !subscribed) return subscribed;
  if (auto bound = source->socket().bind(place.endpoint); !bound) return bound;
  const auto endpoint = source->socket().bound_endpoint();
  if (!endpoint) return std::unexpected(endpoint.error());
  lanes_.push_back(std::make_unique<bound_lane>(*endpoint, place.rank, std::move(*source)));
  queue(name);
  return {};
}

std::vector<std::string> publisher_loop::bound_endpoints() const {
  std::vector<std::string> all;
  for (const auto& each : lanes_) all.push_back(each->endpoint);
  return all;
}

result<void> publisher_loop::add(const publisher_options& settings) {
  auto added = publishers_.add(settings);
  if (!added) return std::unexpected(added.error());
  publisher_entry& entry = **added;
  const token name = token_of(source_kind::source, entry.number);
  const auto connect = [&]() -> result<void> {
    auto source = message_source::open(live_context_, poller_, name, live_options(options_));
    if (!source) return std::unexpected(source.error());
    // All its topics: its numbers run through all of them.
    if (auto subscribed = source->socket().subscribe({}); !subscribed) return subscribed;
    if (auto connected = source->socket().connect(settings.endpoint); !connected) return connected;
    entry.source.emplace(std::move(*source));
    return {};
  };
  if (auto connected = connect(); !connected) {
    ++publishers_.totals().refused_publishers;
    publishers_.erase(entry.number);
    return connected;
  }
  names_[settings.name] = entry.number;
  queue(name);
  return {};
}

void publisher_loop::remove(std::string_view name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return;
  ++turns_;
  publishers_.erase(found->second);
  names_.erase(found);
}

// ---------------------------------------------------------------------------------------------- rounds

void publisher_loop::round(const std::atomic<bool>& stop) {
  stop_ = &stop;
  const feed_time now = round_time();
  const feed_time due = ready_.empty() ? std::min(next_tick_, publishers_.wake_at()) : now;
  const milliseconds limit = due <= now ? milliseconds(0) : std::chrono::ceil<milliseconds>(due - now);
  for (const token each : poller_.wait(limit)) {
    if (each != token_of(source_kind::wake, 0)) {
      queue(each);
    } else {
      next_tick_ = now;
    }
  }
  for (std::size_t turns = ready_.size(); turns != 0 && !is_stopped(); --turns) {
    const token next = ready_.front();
    ready_.pop_front();
    queued_.erase(next);
    if (serve(next)) queue(next);
  }
  advance();
}

void publisher_loop::queue(token ready) {
  if (queued_.insert(ready).second) ready_.push_back(ready);
}

bool publisher_loop::serve(token ready) {
  ++turns_;
  const std::uint64_t number = ready >> 2U;
  switch (static_cast<source_kind>(ready & 3U)) {
    case source_kind::wake: return false;
    case source_kind::line: return serve_line(number);
    case source_kind::lane: return serve_lane(number);
    case source_kind::source: {
      publisher_entry* const entry = publishers_.find(number);
      return entry != nullptr && entry->source && serve_source(*entry);
    }
  }
  return false;
}

bool publisher_loop::serve_source(publisher_entry& entry) {
  bool has_more = true;
  std::size_t bytes = 0;
  for (std::size_t count = 0; count < options_.turn_messages && bytes < options_.turn_bytes && !is_stopped(); ++count) {
    has_more = entry.source->receive(message_);
    if (!has_more) break;
    const auto batch = live_batch_of(message_);
    if (!batch) {
      publishers_.malformed(entry);
      continue;
    }
    bytes += message_.part(batch->payload).size();
    publishers_.live(entry, *batch, message_);
  }
  for (const zmq::connection_event& each : entry.source->take_events()) {
    if (each.change == zmq::connection_change::ready) publishers_.connected(entry);
    if (each.change == zmq::connection_change::gone) publishers_.disconnected(entry);
  }
  return has_more;
}

bool publisher_loop::serve_line(entry_number number) {
  publisher_entry* const entry = publishers_.find(number);
  std::size_t bytes = 0;
  for (std::size_t count = 0; count < options_.turn_messages && bytes < options_.turn_bytes && !is_stopped(); ++count) {
    if (entry == nullptr || !entry->line) return false;
    if (!entry->line->receive(message_)) {
      if (entry->line->is_refused()) publishers_.refused(*entry);
      return false;
    }
    for (std::size_t i = 0; i < message_.size(); ++i) bytes += message_.part(i).size();
    publishers_.answer(*entry, message_);
  }
  return true;
}

bool publisher_loop::serve_lane(std::size_t place) {
  bound_lane& lane = *lanes_[place];
  bool has_more = true;
  std::size_t bytes = 0;
  for (std::size_t count = 0; count < options_.turn_messages && bytes < options_.turn_bytes && !is_stopped(); ++count) {
    has_more = lane.source.receive(message_);
    if (!has_more) break;
    for (std::size_t i = 0; i < message_.size(); ++i) bytes += message_.part(i).size();
    take_bound(place);
  }
  for (const zmq::connection_event& each : lane.source.take_events()) {
    if (each.change == zmq::connection_change::gone) note_end(lane, each.connection);
  }
  return has_more;
}

// ---------------------------------------------------------------------------------------------- bound endpoints

void publisher_loop::take_bound(std::size_t place) {
  const auto batch = live_batch_of(message_);
  if (!batch) {
    ++publishers_.totals().malformed;
    return;
  }
  publisher_entry* const entry = obtain(place, batch->topic);
  if (entry == nullptr) return;
  note_connection(*lanes_[place], *entry, message_.part(0).connection().value_or(-1));
  publishers_.live(*entry, *batch, message_);
}

/// Null: it is refused.
publisher_entry* publisher_loop::obtain(std::size_t place, std::string_view topic) {
  bound_lane& lane = *lanes_[place];
  const auto found = lane.topics.find(topic);
  if (found != lane.topics.end()) return publishers_.find(found->second);
  const auto made = publishers_.add({.lane = place, .endpoint = lane.endpoint, .rank = lane.rank}, topic);
  if (!made) {
    if (made.error().code() == error_code::invalid_argument) ++publishers_.totals().refused_topics;
    return nullptr;
  }
  (*made)->away_since = round_time();
  lane.topics.emplace(topic, (*made)->number);
  return *made;
}

void publisher_loop::note_connection(bound_lane& lane, publisher_entry& entry, int connection) {
  if (entry.connections.contains(connection) || entry.connections.size() >= most_connections) return;
  entry.connections.insert(connection);
  lane.connections[connection].insert(entry.number);
  if (!entry.is_connected) publishers_.connected(entry);
}

void publisher_loop::note_end(bound_lane& lane, int connection) {
  const auto ended = lane.connections.extract(connection);
  if (ended.empty()) return;
  for (const entry_number each : ended.mapped()) {
    publisher_entry* const entry = publishers_.find(each);
    if (entry == nullptr) continue;
    entry->connections.erase(connection);
    if (entry->connections.empty()) {
      entry->away_since = round_time();
      publishers_.disconnected(*entry);
    } else {
      publishers_.connected(*entry);  // it came again before the end of its earlier connection was seen
    }
  }
}

// ---------------------------------------------------------------------------------------------- times

void publisher_loop::advance() {
  if (publishers_.wake_at() <= round_time()) {
    ++turns_;
    // After a slow batch, answers that came meanwhile are read before their silence is judged.
    const std::set<entry_number> lines = publishers_.lines();
    for (const entry_number each : lines) {
      if (serve_line(each)) queue(line_token(each));
    }
    publishers_.advance();
  }
  const feed_time now = round_time();
  if (now < next_tick_) return;
  next_tick_ = now + options_.tick;
  if (now >= next_scan_) forget_absent();
  for (const publisher_id each : sink_.advance(now)) publishers_.reopen(each);
}

void publisher_loop::forget_absent() {
  constexpr milliseconds longest_pause{10'000};
  const feed_time now = round_time();
  next_scan_ = now + std::min(longest_pause, options_.retention / 2);
  std::vector<entry_number> absent;
  for (const auto& [number, entry] : publishers_.entries()) {
    if (entry->is_bound() && entry->connections.empty() && now - entry->away_since >= options_.retention)
      absent.push_back(number);
  }
  for (const entry_number each : absent) {
    const publisher_entry& entry = *publishers_.find(each);
    lanes_[entry.lane]->topics.erase(entry.topic);
    publishers_.erase(each);
    ++turns_;
    ++publishers_.totals().expired;
  }
}

}  // namespace cenote::indexer
