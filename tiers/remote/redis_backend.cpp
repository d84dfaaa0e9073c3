// The thread of the Redis backend: takes calls, polls the connections, tells answers.
#include "tiers/remote/redis_backend.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "core/calendar_clock.hpp"
#include "tiers/remote/rendezvous.hpp"

namespace cenote::remote {

namespace {

steady_time steady_now() {
  return std::chrono::steady_clock::now();
}

/// By server, database and prefix alone: what is known of a server stays known when others are named beside it.
std::string book_name(const redis_address& server, const redis_url& url) {
  const auto place = server.text() + "/" + std::to_string(url.database) + "/" + url.prefix;
  return "redis-" + epoch_text(seed_of(place)) + ".epochs";
}

constexpr std::chrono::seconds repeat_pause{10};  // of removals that a server has not confirmed

redis_settings settings_of(const redis_options& options) {
  return {.prefix = options.url.prefix,
          .user = options.url.user,
          .database = options.url.database,
          .credentials = options.credentials,
          .timeout = options.timeout,
          .first_back_off = options.first_back_off,
          .last_back_off = options.last_back_off,
          .ping_every = options.ping_every};
}

}  // namespace

redis_backend::server::server(redis_address address, const redis_settings& settings, epoch_book& book,
                              redis_answers& answers, std::function<void()> wake, name_lookup lookup)
    : site(std::move(address), settings, book, std::move(wake), std::move(lookup)),
      lanes{redis_lane(site, settings, answers), redis_lane(site, settings, answers),
            redis_lane(site, settings, answers)} {}

result<std::unique_ptr<redis_backend>> redis_backend::open(redis_options options, events told, removal_book removals) {
  if (options.url.servers.empty()) return fail(error_code::invalid_argument, "a Redis backend has no server");
  if (options.timeout <= std::chrono::milliseconds(0)) {
    return fail(error_code::invalid_argument, "the timeout of a Redis backend must be above 0 ms");
  }
  if (!options.credentials.empty()) {
    if (auto read = read_credentials(options.credentials, options.url.user); !read) {
      return std::unexpected(read.error());
    }
  }
  std::error_code failed;
  std::filesystem::create_directories(options.state, failed);
  if (failed) return fail_errno(failed.value(), "mkdir", options.state.native());
  std::deque<epoch_book> books;
  for (const redis_address& each : options.url.servers) {
    auto book = epoch_book::open(options.state / book_name(each, options.url), calendar_ns());
    if (!book) return std::unexpected(book.error());
    books.push_back(std::move(*book));
  }
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  std::unique_ptr<redis_backend> made(
      new redis_backend(std::move(options), std::move(told), std::move(books), std::move(removals), std::move(wake)));
  try {
    made->thread_ = std::thread([self = made.get()] { self->run(); });
  } catch (const std::system_error& thrown) {
    return fail(error_code::system, std::string("start a thread for a Redis backend: ") + thrown.what());
  }
  return made;
}

redis_backend::redis_backend(redis_options options, events told, std::deque<epoch_book> books, removal_book removals,
                             unique_fd wake_descriptor)
    : options_(std::move(options)),
      settings_(settings_of(options_)),
      name_(options_.url.name()),
      told_(std::move(told)),
      wake_(std::move(wake_descriptor)),
      books_(std::move(books)),
      removals_(std::move(removals)) {
  for (const auto& [number, each] : removals_.orders()) unserved_.begin(each.identity, each.keys, steady_time{});
  for (const redis_address& each : options_.url.servers) {
    servers_.emplace_back(
        each, settings_, books_[servers_.size()], answers_, [this] { wake(); }, options_.lookup);
    seeds_.push_back(servers_.back().site.seed());
  }
}

redis_backend::~redis_backend() {
  stop();
}

void redis_backend::look_for_clear(instance_identity identity) {
  enter([this, identity](steady_time) { look_everywhere(identity); });
}

void redis_backend::clear_above_ended(instance_identity identity, const result<void>& outcome) {
  enter([this, identity, outcome](steady_time now) { end_clear_above(identity, outcome, now); });
}

void redis_backend::put(std::vector<item> batch) {
  enter([this, batch = std::move(batch), begun = steady_now()](steady_time now) mutable {
    begin_items(request_kind::put, batch, begun, now);
  });
}

void redis_backend::get(std::vector<item> batch) {
  enter([this, batch = std::move(batch), begun = steady_now()](steady_time now) mutable {
    begin_items(request_kind::get, batch, begun, now);
  });
}

void redis_backend::locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
                           std::function<void(presence)> answer) {
  auto asked = std::make_shared<redis_question>();
  asked->told = std::move(answer);
  const auto begun = steady_now();
  const redis_request like{.kind = request_kind::exists,
                           .name = {.identity = keys.empty() ? instance_identity() : keys.front().identity},
                           .asked = std::move(asked),
                           .begun = begun,
                           .deadline = begun + std::min(patience, settings_.timeout)};
  std::vector<block_key> short_keys;
  short_keys.reserve(keys.size());
  for (const block_name& each : keys) short_keys.push_back(each.key());
  enter([this, like, keys = std::move(short_keys)](steady_time now) { begin_question(like, keys, now); });
}

void redis_backend::drop(instance_identity identity, std::vector<block_key> keys,
                         std::function<void(result<std::uint64_t>)> answer) {
  enter([this, identity, keys = std::move(keys), answer = std::move(answer), call_time = steady_now()](steady_time) {
    begin_drop(identity, keys, call_time, [this, identity, keys, answer](const auto& outcome, const auto& silent) {
      if (!outcome) keep_removal(identity, keys, silent);
      answer(outcome);
    });
  });
}

void redis_backend::begin_drop(instance_identity identity, const std::vector<block_key>& keys, steady_time call_time,
                               drop_receiver answer) {
  auto asked = std::make_shared<redis_question>();
  asked->dropped = std::move(answer);
  const redis_request like{.kind = request_kind::drop,
                           .name = {.identity = identity},
                           .asked = std::move(asked),
                           .begun = call_time,
                           .deadline = call_time + settings_.timeout};
  begin_question(like, keys, steady_now());
}

/// Its keys stay unserved until it is confirmed, those of an order that it replaces no longer.
void redis_backend::keep_removal(instance_identity identity, std::vector<block_key> keys,
                                 const std::set<std::size_t>& silent) {
  const auto now = steady_now();
  if (removals_.orders().empty()) repeats_at_ = now + repeat_pause;
  const std::uint64_t number = removals_.add(
      {.identity = identity, .cleared = 0, .keys = std::move(keys), .spec = {}, .nodes = names_of(silent)});
  for (const auto& each : removals_.take_replaced()) unserved_.end(each.identity, each.keys, now, now);
  unserved_.begin(identity, removals_.find(number)->keys, now);
  saves_at_ = now;
}

std::set<std::string> redis_backend::names_of(const std::set<std::size_t>& servers) const {
  std::set<std::string> names;
  for (const std::size_t each : servers) names.insert(servers_[each].site.name());
  return names;
}

void redis_backend::end_repeat(std::uint64_t number, const result<std::uint64_t>& outcome,
                               const std::set<std::size_t>& silent) {
  repeated_.erase(number);
  const auto* const order = removals_.find(number);
  if (order == nullptr) return;
  if (!outcome) return removals_.keep(number, names_of(silent));
  const auto now = steady_now();
  unserved_.end(order->identity, order->keys, now, now);
  removals_.keep(number, {});
  saves_at_ = now;
  if (removals_.orders().empty() && told_.notice)
    told_.notice("removals that a server had not confirmed are done", "backend", name_);
}

void redis_backend::repeat_removals(steady_time now) {
  if (now < repeats_at_ || removals_.orders().empty() || stands_ != true) return;
  repeats_at_ = now + repeat_pause;
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, each] : removals_.orders()) {
    if (repeated_.insert(number).second) numbers.push_back(number);
  }
  for (const std::uint64_t number : numbers) {
    const auto* const order = removals_.find(number);
    ++repeats_;
    begin_drop(order->identity, order->keys, now,
               [this, number](const auto& outcome, const auto& silent) { end_repeat(number, outcome, silent); });
  }
}

void redis_backend::save_removals(steady_time now) {
  if (!removals_.is_changed() || now < saves_at_) return;
  const auto written = removals_.write(removals_.clears(), removals_.departures());
  if (written) return;
  ++failed_saves_;
  saves_at_ = now + repeat_pause;
  if (told_.notice)
    told_.notice("removals that wait are not kept over a restart until the file can be written", "reason",
                 written.error().describe());
}

/// A clear that waits is in the book of epochs.
void redis_backend::count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) {
  enter([this, identity, answer = std::move(answer)](steady_time) {
    std::set<std::string> uncleared;
    for (server& each : servers_) {
      if (each.site.book().is_pending(each.site.place_of(identity))) uncleared.insert(each.site.name());
    }
    const std::uint64_t clears = uncleared.empty() ? 0 : 1;
    auto counted = removals_.count(identity, std::move(uncleared));
    counted.removals += clears;
    answer(counted);
  });
}

removal_figures redis_backend::removals() const {
  const std::lock_guard lock(counts_mutex_);
  return figures_;
}

/// Orders that wait, and instances with a clear that waits.
removal_figures redis_backend::count_removals() {
  std::set<instance_identity> uncleared;
  for (server& each : servers_) {
    if (!each.site.book().has_pending()) continue;
    const auto waiting = each.site.book().pending_on(each.site.id());
    uncleared.insert(waiting.begin(), waiting.end());
  }
  return {.unconfirmed = removals_.orders().size() + uncleared.size(),
          .repeated = repeats_,
          .dropped = removals_.dropped(),
          .failed_saves = failed_saves_};
}

void redis_backend::clear(instance_identity identity, std::function<void(result<void>)> answer) {
  enter_clear({identity}, false, std::move(answer));
}

void redis_backend::clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) {
  enter_clear(std::move(identities), true, std::move(answer));
}

void redis_backend::enter_clear(std::vector<instance_identity> identities, bool with_known,
                                std::function<void(result<void>)> answer) {
  auto asked = std::make_shared<redis_question>();
  asked->cleared = std::move(answer);
  enter([this, identities = std::move(identities), with_known, asked, begun = steady_now()](steady_time now) {
    begin_clear(identities, with_known, asked, begun, now);
  });
}

void redis_backend::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

redis_counts redis_backend::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void redis_backend::enter(call what) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    inbox_.push_back(std::move(what));
  }
  wake();
}

void redis_backend::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void redis_backend::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-redis");
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  run_steps([this] { return turn(); }, told_.on_exception);
}

bool redis_backend::turn() {
  bool is_stopping = false;
  const auto now = steady_now();
  if (is_at_work_) end_lost(now);
  is_at_work_ = true;
  ask_for_clears(now);  // what was found since, before what was asked for earlier ends
  make_calls(now);      // that an exception left
  {
    const std::lock_guard lock(mutex_);
    calls_.swap(inbox_);
    is_stopping = is_stopping_;
  }
  make_calls(now);
  ask_for_clears(now);
  repeat_removals(now);
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.turn(now);
  }
  if (is_stopping) end_all(now);
  is_at_work_ = false;
  answers_.deliver(told_);
  save_removals(now);
  if (is_stopping) return false;
  say_standing();
  const auto counted = count_removals();
  {
    const std::lock_guard lock(counts_mutex_);
    counts_ = answers_.counts;
    figures_ = counted;
  }
  is_at_work_ = true;
  wait(steady_now());
  is_at_work_ = false;
  return true;
}

void redis_backend::make_calls(steady_time now) {
  for (; !calls_.empty(); calls_.pop_front()) calls_.front()(now);
}

/// What an exception left of its requests nobody knows: all connections are made anew, and all is answered.
void redis_backend::end_lost(steady_time now) {
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.reset(now);
  }
  answers_.end_lost();
  repeated_.clear();
}

void redis_backend::end_all(steady_time now) {
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.stop(now);
  }
}

void redis_backend::wait(steady_time now) {
  std::array<pollfd, max_redis_servers * lanes_a_server + 1> polled{};
  std::size_t count = 0;
  auto next = now + std::chrono::seconds(1);
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) {
      polled[count++] = lane.watched();
      next = std::min(next, lane.next_turn());
    }
  }
  polled[count] = {.fd = wake_.get(), .events = POLLIN, .revents = 0};
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(std::max(next - now, steady_time::duration(0)));
  if (::poll(polled.data(), count + 1, static_cast<int>(patience.count())) <= 0) return;
  if (polled[count].revents != 0) {
    std::uint64_t rings = 0;
    (void)!::read(wake_.get(), &rings, sizeof(rings));
  }
  now = steady_now();
  count = 0;
  for (server& each : servers_) {
    for (redis_lane& lane : each.lanes) lane.serve(polled[count++].revents, now);
  }
}

/// Says that the place answers while one server has all its connections, and that it does not when each server has
/// failed; also when it goes on failing for another reason.
void redis_backend::say_standing() {
  bool is_any_up = false;
  bool is_any_open = false;  // it neither serves nor has failed
  std::optional<error> why;
  for (const server& each : servers_) {
    const bool is_up = std::ranges::all_of(each.lanes, [](const redis_lane& lane) { return lane.is_ready(); });
    const auto failed = std::ranges::find_if(each.lanes, [](const redis_lane& lane) { return !!lane.failure(); });
    is_any_up = is_any_up || is_up;
    is_any_open = is_any_open || (!is_up && failed == each.lanes.end());
    if (!why && failed != each.lanes.end()) why = failed->failure();
  }
  if (!is_any_up && (is_any_open || !why)) return;
  std::string reason = is_any_up ? std::string() : why->describe();
  if (stands_ == is_any_up && reason == said_reason_) return;
  if (is_any_up) repeats_at_ = steady_time{};
  if (told_.standing) told_.standing(is_any_up ? result<void>() : result<void>(std::unexpected(*why)));
  stands_ = is_any_up;  // once it was told
  said_reason_ = std::move(reason);
}

redis_backend::server& redis_backend::home(const redis_request& request) {
  return servers_[home_of(request.name.identity, request.key, seeds_)];
}

void redis_backend::begin_items(request_kind kind, std::vector<item>& batch, steady_time begun, steady_time now) {
  answers_.begin(kind, batch);
  for (item& each : std::exchange(batch, {})) {
    redis_request request{.kind = kind,
                          .name = each.name,
                          .key = each.name.key(),
                          .token = each.token,
                          .size = each.memory.size(),
                          .memory = each.memory,
                          .hash = each.hash,
                          .begun = begun,
                          .deadline = begun + settings_.timeout};
    const bool is_too_much = answers_.open_bytes + request.size > options_.open_bytes && answers_.open_bytes > 0;
    answers_.open_bytes += request.size;
    if (kind == request_kind::get && unserved_.has(request.name.identity, request.key, now)) {
      answers_.end(request, item_result::missing, now);
    } else if (is_too_much || unserved_.has(request.name.identity, request.key, now)) {  // or it would be removed again
      answers_.end(request, item_result::refused, now);
    } else {
      redis_lane& lane = home(request).lanes[kind == request_kind::put ? puts : gets];
      lane.take(std::move(request), now);
    }
  }
}

void redis_backend::begin_question(const redis_request& like, const std::vector<block_key>& keys, steady_time now) {
  redis_question& asked = *like.asked;
  asked.found.held.assign(keys.size(), false);
  asked.open = keys.size();
  const bool is_too_much = answers_.open_keys + keys.size() > options_.open_keys && answers_.open_keys > 0;
  answers_.open_keys += keys.size();
  if (keys.empty()) return answers_.finish(asked);
  const auto landing =
      like.kind == request_kind::drop ? end_puts(like.name.identity, keys, now) : std::vector<block_key>();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    redis_request request = like;
    request.key = keys[i];
    request.index = i;
    request.server = home_of(request.name.identity, request.key, seeds_);
    auto& lanes = servers_[request.server].lanes;
    if (like.kind == request_kind::exists && unserved_.has(like.name.identity, request.key, now)) {
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
std::vector<block_key> redis_backend::end_puts(instance_identity identity, std::vector<block_key> keys,
                                               steady_time now) {
  std::ranges::sort(keys);
  std::vector<block_key> landing;
  for (server& each : servers_)
    std::ranges::copy(each.lanes[puts].end_puts(identity, keys, now), std::back_inserter(landing));
  std::ranges::sort(landing);
  return landing;
}

void redis_backend::look_everywhere(instance_identity identity) {
  for (server& each : servers_) each.lanes[questions].look(identity);
}

/// Has this node's own tiers clear what another node has cleared: once for what all connections to all servers find.
void redis_backend::ask_for_clears(steady_time now) {
  for (const auto& [identity, is_new] : std::exchange(answers_.clears_above, {})) {
    const auto [asked, is_first] = clears_asked_.try_emplace(identity, false);
    if (!is_first) {
      asked->second |= is_new;
    } else if (told_.cleared) {
      look_everywhere(identity);
      told_.cleared(identity);
    } else {
      end_clear_above(identity, {}, now);
    }
  }
}

void redis_backend::end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now) {
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

void redis_backend::begin_clear(const std::vector<instance_identity>& identities, bool with_known,
                                const std::shared_ptr<redis_question>& asked, steady_time begun, steady_time now) {
  std::vector<std::set<instance_identity>> of_servers;
  asked->open = 0;
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
                            .begun = begun,
                            .deadline = begun + settings_.timeout};
      servers_[i].lanes[questions].take(std::move(request), now);
    }
  }
}

}  // namespace cenote::remote
