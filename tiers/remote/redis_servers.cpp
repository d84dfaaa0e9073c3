#include "tiers/remote/redis_servers.hpp"

#include <algorithm>
#include <iterator>
#include <system_error>
#include <utility>

#include "tiers/remote/rendezvous.hpp"

namespace cenote::remote {

namespace {

constexpr auto stamp_pause = std::chrono::seconds(1);  // between two looks for removals of others, while puts go on

/// By server, database and prefix alone: what is known of a server stays known when others are named beside it.
std::string book_name(const redis::server_address& server, const redis::server_url& url) {
  const auto place = server.text() + "/" + std::to_string(url.database) + "/" + url.prefix;
  return "redis-" + epoch_text(seed_of(place)) + ".epochs";
}

redis_settings settings_of(const redis_options& options) {
  return {.prefix = options.url.prefix,
          .user = options.url.user,
          .database = options.url.database,
          .credentials = options.credentials,
          .tls = options.url.tls,
          .timeout = options.timeout,
          .first_back_off = options.first_back_off,
          .last_back_off = options.last_back_off,
          .ping_every = options.ping_every,
          .calendar = options.calendar};
}

}  // namespace

std::vector<std::filesystem::path> epoch_files(const redis_options& options) {
  std::vector<std::filesystem::path> files;
  files.reserve(options.url.servers.size());
  for (const redis::server_address& each : options.url.servers)
    files.push_back(options.state / book_name(each, options.url));
  return files;
}

result<std::deque<epoch_book>> open_epoch_books(const redis_options& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.state, failed);
  if (failed) return fail_errno(failed.value(), "mkdir", options.state.native());
  std::deque<epoch_book> books;
  for (const std::filesystem::path& each : epoch_files(options)) {
    auto book = epoch_book::open(each, options.calendar());
    if (!book) return std::unexpected(book.error());
    books.push_back(std::move(*book));
  }
  return books;
}

redis_servers::server::server(redis::server_address address, const redis_settings& settings, epoch_book& book,
                              redis_answers& answers, std::function<void()> wake, name_lookup lookup)
    : site(std::move(address), settings, book, std::move(wake), std::move(lookup)),
      lanes{redis_lane(site, settings, answers), redis_lane(site, settings, answers),
            redis_lane(site, settings, answers)} {}

bool redis_servers::server::has_all_lanes() const noexcept {
  return std::ranges::all_of(lanes, [](const redis_lane& lane) { return lane.is_ready(); });
}

redis_servers::redis_servers(const redis_options& options, const backend::events& events, std::deque<epoch_book> books,
                             removal_book book, const std::function<void()>& wake, steady_time now)
    : settings_(settings_of(options)),
      most_open_bytes_(options.open_bytes),
      most_open_keys_(options.open_keys),
      events_(events),
      books_(std::move(books)),
      book_(std::move(book)),
      removals_(book_, unserved_,
                {.notice = events.notice,
                 .next_clear =
                     [this](const instance_identity& identity) {
                       keep_clear(identity);
                       return std::uint64_t{0};
                     }},
                now) {
  for (const redis::server_address& each : options.url.servers) {
    servers_.emplace_back(each, settings_, books_[servers_.size()], answers_, wake, options.lookup);
    seeds_.push_back(servers_.back().site.seed());
  }
}

// ---------------------------------------------------------------------------------------------- puts, gets, questions

redis_servers::server& redis_servers::home(const redis_request& request) {
  return servers_[home_of(request.name.identity, request.key, seeds_)];
}

void redis_servers::begin_items(request_kind kind, std::vector<item>& batch, steady_time call_time, steady_time now) {
  answers_.begin(kind, batch);
  for (item& each : std::exchange(batch, {})) {
    redis_request request{.kind = kind,
                          .name = each.name,
                          .key = each.name.key(),
                          .token = each.token,
                          .size = each.memory.size(),
                          .memory = each.memory,
                          .hash = each.hash,
                          .begun = call_time,
                          .deadline = call_time + settings_.timeout,
                          .missed = each.missed};
    server& place = home(request);
    if (kind == request_kind::put) {
      old_removals_.erase(request.name.identity, request.key);
      place.put_since.insert(request.name.identity);
    }
    const bool is_too_much = answers_.open_bytes + request.size > most_open_bytes_ && answers_.open_bytes > 0;
    answers_.open_bytes += request.size;
    if (kind == request_kind::get && unserved_.has(request.name.identity, request.key, now)) {
      answers_.end(request, item_result::missing, now);
    } else if (is_too_much || unserved_.has(request.name.identity, request.key, now)) {  // or it would be removed again
      answers_.end(request, item_result::refused, now);
    } else {
      redis_lane& lane = place.lanes[kind == request_kind::put ? puts : gets];
      lane.take(std::move(request), now);
    }
  }
}

void redis_servers::locate(const std::vector<block_name>& keys, std::function<void(presence)> answer,
                           steady_time call_time, steady_time deadline, steady_time now) {
  auto asked = std::make_shared<redis_question>();
  asked->told = std::move(answer);
  const redis_request pattern{.kind = request_kind::exists,
                              .name = {.identity = keys.empty() ? instance_identity() : keys.front().identity},
                              .asked = std::move(asked),
                              .begun = call_time,
                              .deadline = std::min(deadline, call_time + settings_.timeout)};
  std::vector<block_key> short_keys;
  short_keys.reserve(keys.size());
  for (const block_name& each : keys) short_keys.push_back(each.key());
  begin_question(pattern, short_keys, now);
}

void redis_servers::begin_question(const redis_request& pattern, const std::vector<block_key>& keys, steady_time now) {
  redis_question& asked = *pattern.asked;
  asked.found.held.assign(keys.size(), false);
  asked.open = keys.size();
  const bool is_too_much = answers_.open_keys + keys.size() > most_open_keys_ && answers_.open_keys > 0;
  answers_.open_keys += keys.size();
  if (keys.empty()) return answers_.finish(asked);
  const auto landing =
      pattern.kind == request_kind::drop ? end_puts(pattern.name.identity, keys, now) : std::vector<block_key>();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    redis_request request = pattern;
    request.key = keys[i];
    request.index = i;
    request.server = home_of(request.name.identity, request.key, seeds_);
    auto& lanes = servers_[request.server].lanes;
    if (pattern.kind == request_kind::exists && unserved_.has(pattern.name.identity, request.key, now)) {
      answers_.end(request, item_result::missing, now);
    } else if (is_too_much) {
      answers_.end(request, item_result::unreachable, now);
    } else if (std::ranges::binary_search(landing, request.key)) {
      lanes[puts].take_first(std::move(request), now);  // behind the value
    } else {
      lanes[questions].take(std::move(request), now);
    }
  }
}

/// Those of the keys, sorted, whose values may still land: puts that were not sent yet end.
std::vector<block_key> redis_servers::end_puts(instance_identity identity, std::vector<block_key> keys,
                                               steady_time now) {
  std::ranges::sort(keys);
  std::vector<block_key> landing;
  for (server& each : servers_)
    std::ranges::copy(each.lanes[puts].end_puts(identity, keys, now), std::back_inserter(landing));
  std::ranges::sort(landing);
  return landing;
}

// ---------------------------------------------------------------------------------------------- removals

void redis_servers::drop(instance_identity identity, std::vector<block_key> keys,
                         std::function<void(result<std::uint64_t>)> answer, steady_time call_time, steady_time now) {
  begin_removal({.order = {.identity = identity, .keys = std::move(keys)}, .answer = std::move(answer)}, call_time,
                now);
}

void redis_servers::begin_removal(removals::round round, steady_time call_time, steady_time now) {
  const instance_identity identity = round.order.identity;
  const std::vector<block_key> keys = round.order.keys;
  const std::uint64_t number = removals_.begin(std::move(round), now);
  auto asked = std::make_shared<redis_question>();
  asked->dropped = [this, number](const auto& outcome, const auto& silent) { end_removal(number, outcome, silent); };
  begin_drop(identity, keys, std::move(asked), call_time, now);
}

void redis_servers::begin_drop(const instance_identity& identity, const std::vector<block_key>& keys,
                               std::shared_ptr<redis_question> question, steady_time call_time, steady_time now) {
  const redis_request pattern{.kind = request_kind::drop,
                              .name = {.identity = identity},
                              .asked = std::move(question),
                              .begun = call_time,
                              .deadline = call_time + settings_.timeout};
  begin_question(pattern, keys, now);
}

/// A server without an answer is silent, and so are all of them where it is not known which.
void redis_servers::end_removal(std::uint64_t number, const result<std::uint64_t>& outcome,
                                const std::set<std::size_t>& silent) {
  auto* const round = removals_.find(number);
  if (round == nullptr) return;
  round->removed = outcome.value_or(0);
  round->order.nodes = names_of(silent);
  if (!outcome) round->reason = outcome.error().message();
  if (outcome && silent.empty()) old_removals_.add(round->order.identity, round->order.keys);
  removals_.end(number, now_);
}

/// It is in the books of epochs before the removals leave theirs, and begins with the next turn.
void redis_servers::keep_clear(const instance_identity& identity) {
  forced_clears_.insert(identity);
  for (server& each : servers_) {
    if (!each.site.book().keep_pending(each.site.id(), {identity})) ++answers_.counts.epochs_unwritten;
  }
}

std::set<std::string> redis_servers::names_of(const std::set<std::size_t>& numbers) const {
  std::set<std::string> names;
  for (const std::size_t each : numbers) names.insert(servers_[each].site.name());
  return names;
}

/// A server that has not confirmed it answers, or is none of those that there are now.
bool redis_servers::is_useful(const removal_book::open_removal& order) const {
  return std::ranges::any_of(order.nodes, [&](const std::string& name) {
    const auto found = std::ranges::find_if(servers_, [&](const server& each) { return each.site.name() == name; });
    return found == servers_.end() ? stands_ == true : found->is_up;
  });
}

void redis_servers::repeat_removals(steady_time now) {
  auto due = removals_.take_due(now, [this](const removal_book::open_removal& order) { return is_useful(order); });
  for (auto& each : due) {
    each.order.nodes.clear();
    begin_removal(std::move(each), now, now);
  }
}

/// Removals that this server has confirmed earlier are carried out there once more: it may have forgotten them, and
/// another node, which does not know of them, may have put the blocks again.
void redis_servers::repeat_kept(std::size_t number, steady_time now) {
  servers_[number].has_forgotten = false;
  for (const auto& [identity, kept] : old_removals_.keys()) {
    std::vector<block_key> keys;
    for (const auto& [key, order] : kept) {
      if (home_of(identity, key, seeds_) == number) keys.push_back(key);
    }
    if (keys.empty()) continue;
    ++servers_[number].open_repeats;
    auto asked = std::make_shared<redis_question>();
    asked->dropped = [this, number](const result<std::uint64_t>& outcome, const auto& silent) {
      end_repeat(number, outcome.has_value() && silent.empty());
    };
    begin_drop(identity, keys, std::move(asked), now, now);
  }
}

void redis_servers::end_repeat(std::size_t number, bool is_confirmed) {
  server& home = servers_[number];
  --home.open_repeats;
  if (is_confirmed) return;
  home.has_forgotten = true;
  home.repeats_at = now_ + removals::repeat_pause;
}

/// Of a server that has all its connections: whether it is another process than before, and whether others remove
/// something there.
void redis_servers::watch_removals(std::size_t number, steady_time now) {
  server& home = servers_[number];
  const bool is_ready = home.has_all_lanes();
  const bool is_back = !std::exchange(home.is_greeted, is_ready) && is_ready;
  if (!is_ready) return;
  if (const std::string& run = home.site.stamps().run(); is_back && !run.empty()) {
    const std::string before = std::exchange(home.run, run);
    if (!before.empty() && before != run) home.has_forgotten = true;
    home.repeats_at = now;
  }
  if (home.has_forgotten && home.open_repeats == 0 && now >= home.repeats_at) repeat_kept(number, now);
  if (!is_back && now < home.looked_at + stamp_pause) return;
  // Ahead of puts on their connection: what the server missed is offered when the answer is there.
  home.looked_at = now;
  for (const instance_identity& identity : is_back ? stamped_ : home.put_since) {
    if (stamped_.contains(identity)) home.lanes[puts].look_at_stamp(identity);
  }
  home.put_since.clear();
}

/// A clear that waits is in the book of epochs.
unconfirmed_removals redis_servers::count_unconfirmed(instance_identity identity) {
  std::set<std::string> uncleared;
  for (server& each : servers_) {
    if (each.site.book().is_pending(each.site.place_of(identity))) uncleared.insert(each.site.name());
  }
  const std::uint64_t clears = uncleared.empty() ? 0 : 1;
  auto counted = book_.count(identity, std::move(uncleared));
  counted.removals += clears;
  return counted;
}

/// Orders that wait, and instances with a clear that waits.
removal_figures redis_servers::figures() {
  std::set<instance_identity> uncleared;
  for (server& each : servers_) {
    if (!each.site.book().has_pending()) continue;
    const auto waiting = each.site.book().pending_on(each.site.id());
    uncleared.insert(waiting.begin(), waiting.end());
  }
  auto counted = removals_.figures();
  counted.unconfirmed += uncleared.size();
  return counted;
}

// ---------------------------------------------------------------------------------------------- clears

void redis_servers::clear(const std::vector<instance_identity>& identities, bool with_known,
                          std::function<void(result<void>)> answer, steady_time call_time, steady_time now) {
  const auto asked = std::make_shared<redis_question>();
  asked->cleared = std::move(answer);
  std::vector<std::set<instance_identity>> of_servers;
  for (server& each : servers_) {
    auto& all = of_servers.emplace_back(identities.begin(), identities.end());
    const std::uint64_t place = each.site.id();
    if (with_known) all.merge(each.site.book().known_on(place));
    asked->open += all.size();
    const auto noted = each.site.book().keep_pending(place, all);
    if (!noted) {
      ++answers_.counts.epochs_unwritten;
      asked->unwritten = noted.error();
    }
  }
  if (asked->open == 0) return answers_.finish(*asked);
  for (std::size_t i = 0; i < servers_.size(); ++i) {
    for (const instance_identity& identity : of_servers[i]) {
      redis_request request{.kind = request_kind::clear,
                            .name = {.identity = identity},
                            .asked = asked,
                            .begun = call_time,
                            .deadline = call_time + settings_.timeout};
      servers_[i].lanes[questions].take(std::move(request), now);
    }
  }
}

void redis_servers::look_for_clear(instance_identity identity) {
  for (server& each : servers_) each.lanes[questions].look(identity);
  if (stamped_.contains(identity) || stamped_.size() >= removal_stamps::most_instances) return;
  stamped_.insert(identity);
  for (server& each : servers_) each.lanes[puts].look_at_stamp(identity);
}

void redis_servers::end_stamps(instance_identity identity) {
  stamped_.erase(identity);
}

/// Has this node's own tiers clear what another node has cleared: once for what all connections to all servers find.
void redis_servers::ask_for_clears(steady_time now) {
  for (const auto& [identity, is_new] : std::exchange(answers_.clears_above, {})) {
    const auto [asked, is_first] = clears_asked_.try_emplace(identity, false);
    if (!is_first) {
      asked->second |= is_new;
    } else if (events_.cleared) {
      look_for_clear(identity);
      events_.cleared(identity);
    } else {
      end_clear_above(identity, {}, now);
    }
  }
}

void redis_servers::end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now) {
  const auto asked = clears_asked_.extract(identity);
  if (outcome && !asked.empty() && asked.mapped()) {  // this one may have begun before a later clear
    answers_.clears_above.try_emplace(identity, false);
    return;
  }
  for (server& each : servers_) {
    epoch_book& book = each.site.book();
    const auto where = each.site.place_of(identity);
    if (!outcome || !book.is_uncleared_above(where)) continue;
    if (!book.keep_cleared_above(where)) ++answers_.counts.epochs_unwritten;
  }
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.end_clear_above(identity, outcome, now);
  }
}

// ---------------------------------------------------------------------------------------------- turns

void redis_servers::turn(steady_time now) {
  now_ = now;
  ask_for_clears(now);
  if (const auto forced = std::exchange(forced_clears_, {}); !forced.empty())
    clear(
        {forced.begin(), forced.end()}, false, [](const result<void>&) {}, now, now);
  repeat_removals(now);
  for (std::size_t number = 0; number < servers_.size(); ++number) watch_removals(number, now);
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.turn(now);
  }
}

void redis_servers::deliver(steady_time now) {
  now_ = now;
  answers_.deliver(events_);
  removals_.save(now);
  say_standing(now);
}

void redis_servers::watch(std::vector<pollfd>& polled) const {
  for (const server& each : servers_) {
    for (const redis_lane& lane : each.lanes) polled.push_back(lane.watched());
  }
}

void redis_servers::serve(std::span<const pollfd> polled, steady_time now) {
  auto next = polled.begin();
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.serve((next++)->revents, now);
  }
}

steady_time redis_servers::next_turn() const {
  auto next = forced_clears_.empty() ? removals_.next() : now_;
  for (const server& each : servers_) {
    for (const redis_lane& lane : each.lanes) next = std::min(next, lane.next_turn());
  }
  return next;
}

void redis_servers::end_lost(steady_time now) {
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.reset(now);
  }
  answers_.end_lost();
  std::set<std::size_t> all;
  for (std::size_t i = 0; i < servers_.size(); ++i) all.insert(i);
  const auto lost = fail(error_code::internal, "an exception in this node ended it");
  now_ = now;
  while (!removals_.rounds().empty()) end_removal(removals_.rounds().begin()->first, lost, all);
}

void redis_servers::stop(steady_time now) {
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.stop(now);
  }
  removals_.hasten_save(now);
}

/// Reports that the place answers while one server has all its connections, and that it does not when each server has
/// failed; also when it goes on failing for another reason.
void redis_servers::say_standing(steady_time now) {
  bool is_any_up = false;
  bool is_any_open = false;  // it neither serves nor has failed
  std::optional<error> why;
  for (server& each : servers_) {
    const bool is_up = each.has_all_lanes();
    const auto failed = std::ranges::find_if(each.lanes, [](const redis_lane& lane) { return !!lane.failure(); });
    if (is_up && !each.is_up) removals_.hasten(now);
    each.is_up = is_up;
    is_any_up = is_any_up || is_up;
    is_any_open = is_any_open || (!is_up && failed == each.lanes.end());
    if (!why && failed != each.lanes.end()) why = failed->failure();
  }
  if (!is_any_up && (is_any_open || !why)) return;
  std::string reason = is_any_up ? std::string() : why->describe();
  if (stands_ == is_any_up && reason == said_reason_) return;
  if (events_.standing) events_.standing(is_any_up ? result<void>() : result<void>(std::unexpected(*why)));
  stands_ = is_any_up;  // once it was reported
  said_reason_ = std::move(reason);
}

}  // namespace cenote::remote
