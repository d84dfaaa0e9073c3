// Back-off, greeting, epochs, and the mapping of replies to answers.
#include "tiers/remote/redis_lane.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <ranges>
#include <utility>

#include "core/checksum.hpp"
#include "tiers/remote/removal_stamps.hpp"
#include "transport/redis/command_text.hpp"
#include "transport/redis/reply_errors.hpp"

namespace cenote::remote {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_unsent_bytes = std::size_t{4} << 20U;  // what is not sent yet can still be taken back
// Values that are asked for or sent and not answered. More than keeps the line busy only costs: the server copies what
// it answers ahead into fresh memory, and a command that it reads together with the end of a value makes it copy the
// value.
constexpr std::size_t least_get_window = std::size_t{768} << 10U;
constexpr std::size_t most_window = std::size_t{32} << 20U;
constexpr std::size_t bytes_a_microsecond = 2500;  // of a line of 20 Gbit/s
constexpr std::size_t most_run_commands = 1024;
constexpr std::size_t most_run_bytes = std::size_t{16} << 20U;
constexpr auto longest_run = 20ms;  // so late a clear on another node may be noticed, and what is on its way then
constexpr std::size_t most_instances = 4096;
constexpr unsigned most_rounds = 16;
constexpr auto expiry_grain = 2ms;  // deadlines that are closer than that are looked at together
constexpr auto stuck_for = 1s;

// Sets an epoch if nobody else did since it was seen; gives the one that holds then.
constexpr std::string_view renew_script =
    "local v = redis.call('GET', KEYS[1]) if (v or '') == ARGV[1] then redis.call('SET', KEYS[1], ARGV[2]) "
    "return ARGV[2] end return v or ''";
// Gives the removal stamp of an instance, and makes one where there is none.
constexpr std::string_view stamp_script =
    "local v = redis.pcall('GET', KEYS[1]) if type(v) == 'string' then return v end "
    "redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]";
// Puts a new removal stamp in the place of the one that it gives. Where it cannot be set there is none then, which is
// another one, too.
constexpr std::string_view exchange_script =
    "local v = redis.pcall('GET', KEYS[1]) redis.call('DEL', KEYS[1]) redis.pcall('SET', KEYS[1], ARGV[1]) "
    "if type(v) == 'string' then return v end return ''";
// Puts a block unless something of its instance was removed meanwhile: then -1.
constexpr std::string_view missed_put_script =
    "if redis.pcall('GET', KEYS[2]) ~= ARGV[1] then return -1 end return redis.call('SETNX', KEYS[1], ARGV[2])";
constexpr std::string_view put_tail = "\r\n";  // nothing after a value: what is read with it has it copied

/// Whether a command can be answered like that.
bool fits(request_kind kind, redis::server_reply::type what) noexcept {
  using type = redis::server_reply::type;
  if (what == type::failure) return true;
  switch (kind) {
    case request_kind::look: return what == type::nil || what == type::text;
    case request_kind::get: return what == type::nil || what == type::value || what == type::odd_value;
    case request_kind::probe:
    case request_kind::put:
    case request_kind::exists:
    case request_kind::drop:
    case request_kind::discard:
    case request_kind::discard_landed: return what == type::integer;
    default: return what == type::text;
  }
}

/// A field of the answer to INFO. Empty: the server has none, or not for this user.
std::string_view field_in(const redis::server_reply& reply, std::string_view name) noexcept {
  if (reply.kind != redis::server_reply::type::text) return {};
  const std::size_t begin = reply.text.find(name);
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = reply.text.substr(begin + name.size());
  return rest.substr(0, rest.find_first_of("\r\n"));
}

bool is_of_another_type(const redis::server_reply& reply) noexcept {
  return reply.kind == redis::server_reply::type::failure && reply.text.starts_with("WRONGTYPE");
}

}  // namespace

redis_lane::redis_lane(redis_site& site, const redis_settings& settings, redis_answers& answers)
    : site_(&site), settings_(&settings), answers_(&answers) {}

void redis_lane::take(redis_request request, steady_time now) {
  if (admit(request, now)) queue_.push_back(std::move(request));
}

void redis_lane::take_first(redis_request request, steady_time now) {
  if (admit(request, now)) queue_.push_front(std::move(request));
}

/// False: it was answered at once.
bool redis_lane::admit(redis_request& request, steady_time now) {
  const bool is_value = request.kind == request_kind::put || request.kind == request_kind::get;
  if (is_value && request.size + value_header_bytes >= too_big_) {
    const bool is_put = request.kind == request_kind::put;
    answers_->end(request, is_put ? item_result::full : item_result::missing, now);
    return false;
  }
  if (state_ != state::ready && failures_ > 0) {
    answers_->end(request, item_result::unreachable, now, failure_ ? &*failure_ : nullptr);
    return false;
  }
  soonest_ = std::min(soonest_, request.deadline);
  if (request.kind == request_kind::put) {
    request.clears = site_->book().clears(site_->place_of(request.name.identity));
  }
  return true;
}

std::vector<block_key> redis_lane::end_puts(instance_identity identity, std::span<const block_key> sorted_keys,
                                            steady_time now) {
  const auto is_meant = [&](const instance_identity& of, const block_key& key) {
    return of == identity && std::ranges::binary_search(sorted_keys, key);
  };
  const auto is_put = [&](const redis_request& request) {
    return request.kind == request_kind::put && is_meant(request.name.identity, request.key);
  };
  const auto end_list = [&](std::deque<redis_request>& list) {
    std::erase_if(list, [&](redis_request& request) {
      if (!is_put(request)) return false;
      answers_->end(request, item_result::refused, now);
      return true;
    });
  };
  end_list(queue_);
  if (const auto found = instances_.find(identity); found != instances_.end()) end_list(found->second.held);
  std::vector<block_key> landing;
  connection_.visit([&](redis_request& request) {
    if (!is_put(request)) return;
    request.is_removed = true;
    landing.push_back(request.key);
  });
  std::erase_if(lost_puts_, [&](const value_name& value) {
    if (!is_meant(value.identity, value.key)) return false;
    owed_discards_.push_back(value);
    landing.push_back(value.key);
    return true;
  });
  return landing;
}

void redis_lane::turn(steady_time now) {
  if (state_ == state::waiting && now >= retry_at_) begin_attempt(now);
  if (state_ == state::resolving) connect(now);
  if (state_ != state::waiting && state_ != state::ready && now >= attempt_until_) {
    const std::string_view stage = state_ == state::resolving      ? "its name is not looked up yet"
                                   : connection_.is_in_handshake() ? redis::no_handshake
                                   : state_ == state::connecting   ? "no connection"
                                                                   : "it connects and says nothing";
    lose(error(error_code::deadline_exceeded,
               std::string(stage) + " after " + std::to_string(settings_->timeout.count()) + " ms"),
         now);
  }
  if (state_ == state::ready) watch_silence(now);
  if (now >= soonest_) expire(now);
  pump(now);
}

void redis_lane::begin_attempt(steady_time now) {
  attempt_until_ = now + settings_->timeout;
  ++attempts_;
  state_ = state::resolving;
}

void redis_lane::connect(steady_time now) {
  const auto* addresses = site_->addresses(now);
  if (addresses == nullptr) return;
  if (!*addresses) return lose(addresses->error(), now);
  auto secured = redis::make_stream(settings_->tls, site_->host());
  if (!secured) return lose(secured.error(), now);
  if (auto begun = connection_.begin(**addresses, attempts_ - 1, std::move(*secured)); !begun) {
    return lose(begun.error(), now);
  }
  state_ = state::connecting;
}

void redis_lane::greet(steady_time now) {
  state_ = state::greeting;
  greetings_open_ = 0;
  if (!settings_->credentials.empty()) {
    const auto found = redis::read_credentials(settings_->credentials, settings_->user);
    if (!found) return lose(found.error(), now);
    greet_with(found->user.empty() ? redis::wire_command({"AUTH", found->password})
                                   : redis::wire_command({"AUTH", found->user, found->password}),
               now);
  }
  if (settings_->database != 0) greet_with(redis::wire_command({"SELECT", std::to_string(settings_->database)}), now);
  greet_with(redis::wire_command({"PING"}), now);
  const std::string& prefix = settings_->prefix;
  send_own(request_kind::run, redis::wire_command({"INFO"}));
  send_own(request_kind::probe, redis::wire_command({"TOUCH", prefix + ":alive", prefix + ":one", prefix + ":other"}));
  // A server that may not be written to is of no use, and should be known before it is counted on.
  greet_with(redis::wire_command({"SET", settings_->prefix + ":alive", "1", "PX", "60000"}), now);
  connection_.flush(now);
  greeted_ = now;
}

void redis_lane::greet_with(std::string command, steady_time now) {
  ++greetings_open_;
  redis_request request{.kind = request_kind::greet, .begun = now, .deadline = steady_time::max()};
  request.head = std::move(command);
  connection_.send(std::move(request));
}

void redis_lane::lose(const error& why, steady_time now) {
  if (state_ == state::ready && now - ready_since_ > 5 * settings_->first_back_off) failures_ = 0;
  failure_ = why.in(site_->name());
  ++answers_->counts.lost;
  state_ = state::waiting;
  const auto back_off = settings_->first_back_off * (1U << std::min(failures_, 10U));
  retry_at_ = now + std::min(back_off, settings_->last_back_off);
  ++failures_;
  doom_.reset();
  auto open = connection_.close();
  for (const redis_request& each : open) remember_lost(each);
  std::ranges::move(queue_, std::back_inserter(open));
  queue_.clear();
  for (auto& [identity, of] : instances_) std::ranges::move(of.held, std::back_inserter(open));
  instances_.clear();
  ++run_;
  run_commands_ = run_bytes_ = 0;
  soonest_ = steady_time::max();
  for (redis_request& each : open) answers_->end(each, item_result::unreachable, now, &*failure_);
}

/// A command that went out may be carried out behind the end of its connection.
void redis_lane::remember_lost(const redis_request& request) {
  const bool is_put = request.kind == request_kind::put && request.is_begun();
  if (request.kind == request_kind::discard_landed || (is_put && (request.is_removed || request.has_run_over))) {
    owed_discards_.push_back(value_of(request));
  } else if (is_put) {
    lost_puts_.push_back(value_of(request));
  }
}

void redis_lane::stop(steady_time now) {
  lose(error(error_code::closed, "this node does not ask it any more"), now);
  retry_at_ = steady_time::max();
}

void redis_lane::watch_silence(steady_time now) {
  const redis_request* oldest = connection_.oldest();
  if (oldest != nullptr) {
    last_busy_ = now;
    const bool is_overdue =
        oldest->sent != steady_time{} && std::max(oldest->sent, connection_.last_reply()) + settings_->timeout <= now;
    if (is_overdue) {
      lose(error(error_code::deadline_exceeded, "no reply in " + std::to_string(settings_->timeout.count()) + " ms"),
           now);
    }
  } else if (now - last_busy_ >= settings_->ping_every) {
    last_busy_ = now;
    send_own(request_kind::ping, redis::wire_command({"PING"}));
  }
}

void redis_lane::expire(steady_time now) {
  const error late(error_code::deadline_exceeded, site_->name() + ": no answer in time");
  const auto end = [&](redis_request& request) { answers_->end(request, item_result::unreachable, now, &late); };
  // The server is not to blame while this node's own tiers clear: what is there of before counts as not there.
  const auto end_uncleared = [&](redis_request& request) {
    const bool is_question = request.kind == request_kind::get || request.kind == request_kind::exists;
    answers_->end(request, is_question ? item_result::missing : item_result::unreachable, now, &late);
  };
  auto next = connection_.expire(now, end);
  const auto expire_list = [&](std::deque<redis_request>& list, const auto& end_one) {
    std::erase_if(list, [&](redis_request& each) {
      if (each.deadline > now) {
        next = std::min(next, each.deadline);
        return false;
      }
      end_one(each);
      return true;
    });
  };
  expire_list(queue_, end);
  for (auto& [identity, of] : instances_) {
    if (of.what == standing::clearing_above) {
      expire_list(of.held, end_uncleared);
    } else {
      expire_list(of.held, end);
    }
  }
  soonest_ = next == steady_time::max() ? next : std::max(next, now + expiry_grain);
}

void redis_lane::pump(steady_time now) {
  if (state_ != state::ready) return;
  if (now - run_began_ >= longest_run) end_run();
  if (run_commands_ == 0) run_began_ = now;
  while (state_ == state::ready && !queue_.empty() && connection_.unsent_bytes() < most_unsent_bytes &&
         connection_.value_bytes() < window_of(queue_.front())) {
    redis_request request = std::move(queue_.front());
    queue_.pop_front();
    dispatch(std::move(request), now);
    if (connection_.unsent_bytes() >= most_unsent_bytes / 4) connection_.flush(now);
  }
  connection_.flush(now);
  if (queue_.empty()) end_run();
}

/// What is sent from now on is preceded by a look.
void redis_lane::end_run() {
  if (run_commands_ == 0) return;
  ++run_;
  run_commands_ = run_bytes_ = 0;
}

/// What a line of 20 Gbit/s carries in a round trip; of gets two at least, so that the server has the next one at hand.
std::size_t redis_lane::window_of(const redis_request& next) const noexcept {
  const auto trip =
      static_cast<std::size_t>(std::chrono::duration_cast<std::chrono::microseconds>(round_trip_).count());
  const std::size_t least = next.kind == request_kind::put ? 1 : std::max(least_get_window, next.size + 1);
  return std::max(least, std::min(least + trip * bytes_a_microsecond, most_window));
}

void redis_lane::dispatch(redis_request request, steady_time now) {
  const instance_identity identity = request.name.identity;
  const auto where = site_->place_of(identity);
  if (request.kind == request_kind::put && request.clears != site_->book().clears(where)) {
    return answers_->end(request, item_result::refused, now);  // it was to be put before the clear
  }
  if (!instances_.contains(identity)) forget_idle_instances();
  instance& of = instances_[identity];
  const bool is_over =
      site_->book().known(where) != of.number || site_->book().is_pending(where) || request.kind == request_kind::clear;
  if (is_over && (of.what == standing::known || of.what == standing::clearing_above)) of.what = standing::unknown;
  if (of.what == standing::known) return send_command(std::move(request), of, now);
  if (of.what == standing::stuck && now >= of.retry_at) of.what = standing::unknown;
  of.held.push_back(std::move(request));
  if (of.what == standing::stuck) {
    end_held(of, error(error_code::no_space, site_->name() + ": full"), now);
  } else if (of.what == standing::unknown) {
    of.what = standing::looking;
    of.rounds = 0;
    send_look(identity);
  }
}

void redis_lane::look(instance_identity identity) {
  if (state_ != state::ready) return;
  if (!instances_.contains(identity)) forget_idle_instances();
  instance& of = instances_[identity];
  if (of.what != standing::unknown && of.what != standing::known) return;
  if (of.what == standing::unknown) of.what = standing::looking;
  of.rounds = 0;
  send_look(identity);
}

void redis_lane::look_at_stamp(instance_identity identity) {
  if (state_ != state::ready) return;
  redis_request look{
      .kind = request_kind::look_at_stamp, .name = {.identity = identity}, .deadline = steady_time::max()};
  look.number = removal_stamps::make_for_look();
  look.head = redis::wire_command({"EVAL", stamp_script, "1", stamp_key(identity), epoch_text(look.number)});
  connection_.send(std::move(look));
}

void redis_lane::send_command(redis_request request, instance& of, steady_time now) {
  if (request.missed) {
    const auto stamp = site_->stamps().valid_stamp(request.name.identity, *request.missed);
    if (!stamp) return answers_->end(request, item_result::refused, now);  // another node may have removed it there
    request.stamp = *stamp;
  }
  // A removal takes what was put before it was asked for, also after a clear in the same run.
  const bool needs_look = request.kind == request_kind::drop && of.looked_at < request.begun;
  if (of.run != run_ || needs_look) {
    of.run = run_;
    of.looked_at = std::max(now, request.begun);
    send_look(request.name.identity);
  }
  if (request.kind == request_kind::drop && of.stamped_at < request.begun) {  // ahead of it: see removal_stamps
    of.stamped_at = std::max(now, request.begun);
    send_stamp(request.name.identity);
  }
  request.number = of.number;
  const std::string key = key_of(value_of(request));
  switch (request.kind) {
    case request_kind::put:
      request.head = head_of_put(request, key);
      request.has_body = true;
      request.tail = put_tail;
      break;
    case request_kind::get: request.head = redis::wire_command({"GET", key}); break;
    case request_kind::exists: request.head = redis::wire_command({"EXISTS", key}); break;
    default: request.head = redis::wire_command({"DEL", key}); break;
  }
  ++run_commands_;
  run_bytes_ += request.size;
  connection_.send(std::move(request));
  if (run_commands_ >= most_run_commands || run_bytes_ >= most_run_bytes) end_run();
}

/// All of the command before the bytes of the block.
std::string redis_lane::head_of_put(const redis_request& request, const std::string& key) const {
  const auto hash = request.hash ? *request.hash : checksum_of(request.memory);
  const value_header header = header_of(request.name, request.size, hash);
  const instance_identity& identity = request.name.identity;
  const auto bulk = [](std::string_view text) {
    return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
  };
  std::string head = request.missed ? "*7\r\n" + bulk("EVAL") + bulk(missed_put_script) + bulk("2") + bulk(key) +
                                          bulk(stamp_key(identity)) + bulk(epoch_text(request.stamp))
                                    : "*3\r\n" + bulk("SETNX") + bulk(key);
  head += "$" + std::to_string(request.size + value_header_bytes) + "\r\n";
  head.append(reinterpret_cast<const char*>(header.data()), header.size());
  return head;
}

void redis_lane::send_stamp(instance_identity identity) {
  redis_request stamp{.kind = request_kind::stamp, .name = {.identity = identity}, .deadline = steady_time::max()};
  stamp.number = removal_stamps::make_for_removal();
  stamp.head = redis::wire_command({"EVAL", exchange_script, "1", stamp_key(identity), epoch_text(stamp.number)});
  connection_.send(std::move(stamp));
}

void redis_lane::send_look(instance_identity identity) {
  redis_request look{.kind = request_kind::look, .name = {.identity = identity}, .deadline = steady_time::max()};
  look.head = redis::wire_command({"GET", epoch_key(identity)});
  connection_.send(std::move(look));
}

void redis_lane::send_own(request_kind kind, std::string command) {
  redis_request own{.kind = kind, .deadline = steady_time::max()};
  own.head = std::move(command);
  connection_.send(std::move(own));
}

/// Puts a request whose epoch was over in front of what waits; false: there is nothing to do again.
bool redis_lane::send_again(redis_request& request) {
  if (request.is_answered || is_current(request)) return false;
  ++answers_->counts.stale;
  take_back(std::move(request));
  return true;
}

/// In front of what waits.
void redis_lane::take_back(redis_request request) {
  request.rewind();
  soonest_ = std::min(soonest_, request.deadline);
  queue_.push_front(std::move(request));
}

std::string redis_lane::key_of(const value_name& name) const {
  return settings_->prefix + ":" + identity_text(name.identity) + ":" + epoch_text(name.number) + ":" +
         epoch_text(name.key.hi) + epoch_text(name.key.lo);
}

std::string redis_lane::epoch_key(instance_identity identity) const {
  return settings_->prefix + ":" + identity_text(identity) + ":epoch";
}

std::string redis_lane::stamp_key(instance_identity identity) const {
  return settings_->prefix + ":" + identity_text(identity) + ":removals";
}

void redis_lane::serve(short events, steady_time now) {
  if (state_ == state::waiting || state_ == state::resolving) return;
  const auto served = connection_.serve(
      events, now, [&](redis_request& request, const redis::server_reply& reply) { on_reply(request, reply, now); });
  if (!served) {
    if (served.error().code() == error_code::limit_exceeded) {
      // The size that it refused is that of the command it had begun to read.
      if (const redis_request* refused = connection_.oldest(); refused != nullptr) {
        too_big_ = std::min(too_big_, refused->size + value_header_bytes);
      }
    }
    return lose(doom_ ? *doom_ : served.error(), now);
  }
  if (doom_) return lose(*doom_, now);
  if (state_ == state::connecting && connection_.is_connected()) greet(now);
}

void redis_lane::on_reply(redis_request& request, const redis::server_reply& reply, steady_time now) {
  if (request.is_answered) ++answers_->counts.late;
  if (!fits(request.kind, reply.kind)) {
    if (!doom_) doom_ = error(error_code::malformed, "it answers a command as if it were another one");
    return answers_->end(request, item_result::unreachable, now, &*doom_);
  }
  switch (request.kind) {
    case request_kind::greet: return on_greeting(reply, now);
    case request_kind::probe: return on_probe(reply);
    case request_kind::run:
      return site_->stamps().note_run(field_in(reply, "\nrun_id:"), field_in(reply, "\nevicted_keys:") != "0");
    case request_kind::look_at_stamp:
    case request_kind::stamp: return on_stamp(request, reply, now);
    case request_kind::look: return on_look(request, reply, now);
    case request_kind::renew: return on_renewed(request, reply, now);
    case request_kind::put: return on_put(request, reply, now);
    case request_kind::get: return on_got(request, reply, now);
    case request_kind::exists:
    case request_kind::drop: return on_count(request, reply, now);
    case request_kind::ping:
    case request_kind::discard:
    case request_kind::discard_landed:
    case request_kind::clear:
      if (reply.kind == redis::server_reply::type::failure) on_failure(request, reply, now);
  }
}

void redis_lane::on_greeting(const redis::server_reply& reply, steady_time now) {
  const bool is_last = --greetings_open_ == 0;
  if (reply.kind == redis::server_reply::type::failure &&
      !(is_last && redis::meaning_of(reply.text) == redis::reply_failure::full)) {
    if (!doom_) doom_ = error(error_code::system, redis::explained(reply.text));
    return;
  }
  if (!is_last || doom_) return;
  state_ = state::ready;
  ready_since_ = last_busy_ = now;
  round_trip_ = now - greeted_;
  failure_.reset();
  ++answers_->counts.connections;
  for (const instance_identity& identity : site_->book().pending_on(site_->id())) {
    instances_[identity].what = standing::looking;
    send_look(identity);
  }
  // The server has answered on this connection: what the one before had left there was carried out, or never will be.
  lost_puts_.clear();
  for (const value_name& each : std::exchange(owed_discards_, {})) discard(each, request_kind::discard_landed);
}

/// A member of a Redis Cluster serves the keys of its own slots alone: it is refused as a whole. Any other failure
/// means a server without the command, or without the right to it.
void redis_lane::on_probe(const redis::server_reply& reply) {
  if (reply.kind != redis::server_reply::type::failure || doom_ || !redis::is_of_cluster(reply.text)) return;
  doom_ = error(error_code::unsupported, redis::explained(reply.text));
}

/// A removal without a new stamp might be undone by what is offered later: it is not confirmed.
void redis_lane::on_stamp(const redis_request& request, const redis::server_reply& reply, steady_time now) {
  const instance_identity& identity = request.name.identity;
  if (reply.kind == redis::server_reply::type::failure) {
    site_->stamps().forget(identity);
    if (request.kind != request_kind::stamp) return;
    instances_[identity].stamp_failure = error(error_code::system, site_->name() + ": " + redis::explained(reply.text));
    instances_[identity].stamped_at = {};
    if (redis::meaning_of(reply.text) != redis::reply_failure::full && !doom_)
      doom_ = error(error_code::system, redis::explained(reply.text));
    return;
  }
  if (request.kind == request_kind::stamp) instances_[identity].stamp_failure.reset();
  const removal_stamps::stamp seen = epoch_in(reply.text);
  if (request.kind == request_kind::stamp)
    site_->stamps().note_removal(identity, seen, request.number, now);
  else
    site_->stamps().note_look(identity, seen, now);
}

void redis_lane::on_look(const redis_request& request, const redis::server_reply& reply, steady_time now) {
  const instance_identity identity = request.name.identity;
  instance& of = instances_[identity];
  if (reply.kind == redis::server_reply::type::failure) {
    if (!is_of_another_type(reply)) return give_up(of, reply.text, now);
    // Somebody's list or hash in its place: one instance's harm must not become that of all.
    send_own(request_kind::discard, redis::wire_command({"DEL", epoch_key(identity)}));
    return stick(of, "what stands in the place of its epoch is none", now);
  }
  const epoch_record seen = record_in(reply.text, settings_->calendar());
  of.seen = seen.number;
  round_trip_ = std::min(round_trip_, now - request.sent);
  if (of.what == standing::known || of.what == standing::clearing_above) {
    if (of.seen == of.number) return;
    of.what = standing::looking;
  }
  if (of.what == standing::looking) settle(identity, of, reply.text, seen, now);
}

/// Takes the server's epoch, or makes a new one in its place.
void redis_lane::settle(instance_identity identity, instance& of, std::string_view raw, const epoch_record& seen,
                        steady_time now) {
  epoch_book& book = site_->book();
  const auto where = site_->place_of(identity);
  if (book.is_clear_of_another(where, seen.number)) answers_->clears_above[identity] = true;
  if (seen.number > book.known(where)) {
    ++answers_->counts.epochs_adopted;
    note(book.adopt(where, seen));
  } else if (seen.number < book.known(where)) {
    note(book.look_back(where, seen.number));
  }
  const bool must_renew = book.is_pending(where) || of.seen == 0 || of.seen < book.known(where);
  if (!must_renew) return serve_from(identity, of, of.seen, now);
  if (of.held.empty() && !book.is_pending(where)) {  // nothing is asked for: what there is none of stays so
    of.what = standing::unknown;
    return;
  }
  if (++of.rounds > most_rounds) return give_up(of, "others renew it all the time", now);
  redis_request renew{.kind = request_kind::renew, .name = {.identity = identity}, .deadline = steady_time::max()};
  const epoch_record made = book.next_record(where, seen, settings_->calendar());
  renew.number = made.number;
  renew.clears = book.clears(where);
  book.propose(where, renew.number);
  renew.head = redis::wire_command({"EVAL", renew_script, "1", epoch_key(identity), raw, record_text(made)});
  connection_.send(std::move(renew));
  of.what = standing::renewing;
}

void redis_lane::on_renewed(const redis_request& request, const redis::server_reply& reply, steady_time now) {
  instance& of = instances_[request.name.identity];
  if (reply.kind == redis::server_reply::type::failure) return give_up(of, reply.text, now);
  const epoch_record seen = record_in(reply.text, settings_->calendar());
  of.seen = seen.number;
  if (of.seen != request.number) return settle(request.name.identity, of, reply.text, seen, now);
  ++answers_->counts.epochs_made;
  epoch_book& book = site_->book();
  const auto where = site_->place_of(request.name.identity);
  if (book.clears(where) != request.clears) return settle(request.name.identity, of, reply.text, seen, now);
  note(book.keep(where, seen));
  serve_from(request.name.identity, of, of.seen, now);
}

/// The requests that wait have their turn, but for clears not before this node's own tiers have cleared what another
/// node cleared.
void redis_lane::serve_from(instance_identity identity, instance& of, epoch number, steady_time now) {
  const bool is_uncleared = site_->book().is_uncleared_above(site_->place_of(identity));
  of.what = is_uncleared ? standing::clearing_above : standing::known;
  of.number = number;
  of.rounds = 0;
  of.run = 0;  // so that what was held is preceded by a look as everything is
  auto held = std::exchange(of.held, {});
  for (redis_request& each : held) {
    if (each.kind == request_kind::clear) answers_->end(each, item_result::done, now);
  }
  std::erase_if(held, [](const redis_request& each) { return each.kind == request_kind::clear; });
  if (is_uncleared) {
    answers_->clears_above.try_emplace(identity, false);
    of.held = std::move(held);
    return;
  }
  for (redis_request& each : std::views::reverse(held)) queue_.push_front(std::move(each));
}

void redis_lane::end_clear_above(instance_identity identity, const result<void>& outcome, steady_time now) {
  const auto found = instances_.find(identity);
  if (found == instances_.end() || found->second.what != standing::clearing_above) return;
  if (outcome) return serve_from(identity, found->second, found->second.number, now);
  stick(found->second, "another node has cleared it, and this one has not yet: " + outcome.error().message(), now);
}

/// The server refuses to say or keep an epoch.
void redis_lane::give_up(instance& of, std::string_view reply, steady_time now) {
  if (redis::meaning_of(reply) == redis::reply_failure::full) return stick(of, redis::explained(reply), now);
  if (!doom_)
    doom_ = error(error_code::system, redis::explained(reply));  // all is answered when the connection is lost
}

/// No epoch: nothing of the instance is there, and for a while nothing can be put.
void redis_lane::stick(instance& of, const std::string& why, steady_time now) {
  of.what = standing::stuck;
  of.retry_at = now + stuck_for;
  end_held(of, error(error_code::no_space, site_->name() + ": " + why), now);
}

void redis_lane::end_held(instance& of, const error& why, steady_time now) {
  for (redis_request& each : std::exchange(of.held, {})) {
    const bool is_lost = each.kind == request_kind::get || each.kind == request_kind::exists;
    answers_->end(each, is_lost ? item_result::missing : item_result::full, now, &why);
  }
}

void redis_lane::on_put(redis_request& request, const redis::server_reply& reply, steady_time now) {
  if (reply.kind == redis::server_reply::type::failure) return on_failure(request, reply, now);
  const bool was_kept = reply.kind == redis::server_reply::type::integer && reply.number > 0;
  if ((request.has_run_over || request.is_removed) && was_kept) {
    discard(value_of(request), request_kind::discard_landed);
  }
  if (request.is_removed) return answers_->end(request, item_result::refused, now);
  if (request.missed && reply.number < 0) return on_other_stamp(request, now);
  if (was_unseen(request) && send_again(request)) return;
  const bool is_over = !is_current(request);
  if (is_over) ++answers_->counts.stale;
  answers_->end(request, is_over ? item_result::refused : item_result::done, now);
}

/// Something was removed: by this node, whose next try has the new stamp, or by another one, which the next look shows.
void redis_lane::on_other_stamp(redis_request& request, steady_time now) {
  const auto known = site_->stamps().valid_stamp(request.name.identity, *request.missed);
  if (known && *known != request.stamp && !request.is_answered) return take_back(std::move(request));
  answers_->end(request, item_result::refused, now);
}

void redis_lane::on_got(redis_request& request, const redis::server_reply& reply, steady_time now) {
  using type = redis::server_reply::type;
  if (request.is_answered && reply.kind != type::odd_value) return;  // that one would be too late again and again
  if (reply.kind == type::failure && !is_of_another_type(reply)) return on_failure(request, reply, now);
  if (!is_current(request)) {
    ++answers_->counts.stale;
    return answers_->end(request, item_result::missing, now);
  }
  if (reply.kind == type::nil) return answers_->end(request, item_result::missing, now);
  const auto found = reply.kind == type::value ? judge(reply.header, request.memory, request.name) : value_state::wrong;
  if (found == value_state::right) return answers_->end(request, item_result::done, now);
  if (found == value_state::of_another) return answers_->end(request, item_result::missing, now);
  ++answers_->counts.wrong;
  discard(value_of(request), request_kind::discard);
  answers_->end(request, item_result::wrong, now);
}

void redis_lane::on_count(redis_request& request, const redis::server_reply& reply, steady_time now) {
  if (request.is_answered) return;
  if (reply.kind == redis::server_reply::type::failure) return on_failure(request, reply, now);
  if (request.kind == request_kind::drop && send_again(request)) return;
  const auto& failed = instances_[request.name.identity].stamp_failure;
  if (request.kind == request_kind::drop && failed)
    return answers_->end(request, item_result::unreachable, now, &*failed);
  const bool is_there = reply.kind == redis::server_reply::type::integer && reply.number > 0;
  const bool counts = is_there && is_current(request);
  if (is_there && !counts) ++answers_->counts.stale;
  answers_->end(request, counts ? item_result::done : item_result::missing, now);
}

void redis_lane::on_failure(redis_request& request, const redis::server_reply& reply, steady_time now) {
  const redis::reply_failure what = redis::meaning_of(reply.text);
  const error why(error_code::system, site_->name() + ": " + redis::explained(reply.text));
  const bool is_put = request.kind == request_kind::put;
  if (what == redis::reply_failure::too_big && is_put) too_big_ = std::min(too_big_, request.size + value_header_bytes);
  if (what != redis::reply_failure::full && !doom_) doom_ = error(error_code::system, redis::explained(reply.text));
  const bool is_refused = is_put && what != redis::reply_failure::away;
  answers_->end(request, is_refused ? item_result::full : item_result::unreachable, now, &why);
}

/// Removes a value that is of no use, or one that landed after its removal: again on the next connection if this one
/// ends before its reply.
void redis_lane::discard(const value_name& name, request_kind kind) {
  ++answers_->counts.discarded;
  redis_request own{.kind = kind,
                    .name = {.identity = name.identity},
                    .key = name.key,
                    .deadline = steady_time::max(),
                    .number = name.number};
  own.head = redis::wire_command({"DEL", key_of(name)});
  connection_.send(std::move(own));
}

void redis_lane::note(const result<void>& written) {
  if (!written) ++answers_->counts.epochs_unwritten;
}

/// Whether its key was made with the epoch that holds, also as another connection of this node knows it.
bool redis_lane::is_current(const redis_request& request) const noexcept {
  const auto found = instances_.find(request.name.identity);
  const auto where = site_->place_of(request.name.identity);
  return found != instances_.end() && found->second.seen == request.number &&
         site_->book().known(where) == request.number && !site_->book().is_pending(where);
}

/// Whether the server had another epoch before it took a put: replies come in the order of their commands.
bool redis_lane::was_unseen(const redis_request& request) const noexcept {
  const auto found = instances_.find(request.name.identity);
  return found != instances_.end() && found->second.seen != request.number;
}

void redis_lane::forget_idle_instances() {
  if (instances_.size() < most_instances) return;
  std::erase_if(instances_, [](const auto& each) {
    const auto what = each.second.what;
    return each.second.held.empty() && !each.second.stamp_failure &&
           (what == standing::known || what == standing::stuck);
  });
}

pollfd redis_lane::watched() const noexcept {
  const bool is_open = state_ != state::waiting && state_ != state::resolving;
  return {.fd = is_open ? connection_.descriptor() : -1,
          .events = is_open ? connection_.wanted_events() : short{0},
          .revents = 0};
}

steady_time redis_lane::next_turn() const noexcept {
  auto next = soonest_;
  if (state_ == state::waiting) return std::min(next, retry_at_);
  if (state_ != state::ready) return std::min(next, attempt_until_);
  const redis_request* oldest = connection_.oldest();
  if (oldest == nullptr) return std::min(next, last_busy_ + settings_->ping_every);
  if (oldest->sent == steady_time{}) return next;
  return std::min(next, std::max(oldest->sent, connection_.last_reply()) + settings_->timeout);
}

}  // namespace cenote::remote
