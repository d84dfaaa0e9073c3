#include "client/connection.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/random_number.hpp"
#include "memory/index.hpp"
#include "memory/instance_memory.hpp"
#include "memory/session_memory.hpp"

namespace cenote::client {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t slabs_a_query = local::max_frame_fds;
constexpr milliseconds retry_pause{5};       // between attempts to meet a worker that just died
constexpr milliseconds look_at_caller{100};  // how soon one that waits for the next worker sees that it is closed

result<memory::segment> open_session(unique_fd fd, std::uint64_t bytes) {
  auto mapped = memory::segment::map(std::move(fd), bytes, memory::access::read_write);
  if (!mapped) return mapped;
  mapped->keep_from_children();
  const auto& header = *reinterpret_cast<const memory::segment_header*>(mapped->data());
  if (auto ok = memory::check_header(header, memory::segment_kind::session, bytes); !ok) {
    return std::unexpected(ok.error());
  }
  mapped->populate(0, bytes, memory::access::read_write);
  return mapped;
}

result<attachment> read_reply(unique_fd socket, local::frame reply) {
  auto ids = local::decode_attach_reply(reply.payload);
  if (!ids) return std::unexpected(ids.error());
  if (reply.fds.size() != 5 || ids->pin_slots > memory::session_memory::max_pin_slots) {
    return fail(error_code::malformed, "the node's attach reply lacks descriptors or has absurd numbers");
  }
  attachment out;
  out.socket = std::move(socket);
  out.ids = *ids;
  out.submit_bell = std::move(reply.fds[1]);
  out.complete_bell = std::move(reply.fds[2]);
  auto session = open_session(std::move(reply.fds[0]), memory::session_memory::segment_bytes(ids->pin_slots));
  if (!session) return std::unexpected(session.error().in("session memory"));
  auto index = memory::open_index(std::move(reply.fds[3]));
  if (!index) return std::unexpected(index.error().in("index"));
  auto versions = memory::open_versions(std::move(reply.fds[4]));
  if (!versions) return std::unexpected(versions.error().in("version table"));
  out.session = std::move(*session);
  out.index = std::move(*index);
  out.versions = std::move(*versions);
  return out;
}

/// The end of the stream means that the worker went away; `closed` is left for what the node itself says.
error as_restart(const error& why) {
  if (why.code() != error_code::closed) return why;
  return {error_code::node_restarting, "the node's worker went away: " + why.message()};
}

/// Until there is something to read, or `until`.
result<void> await_word(int fd, time_point until, const std::atomic<bool>& given_up) {
  for (auto now = steady_clock::now(); now < until; now = steady_clock::now()) {
    if (given_up.load(std::memory_order_relaxed)) return fail(error_code::closed, "the session is closed");
    const auto left = std::chrono::ceil<milliseconds>(until - now);
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(std::min(left, look_at_caller).count())) > 0) return {};
  }
  return {};
}

/// Reads until the answer to `request` comes; answers to questions that timed out earlier are dropped.
result<local::frame> receive_answer(int fd, std::uint32_t request, local::frame_type expected, time_point until) {
  for (;;) {
    auto answer = local::receive_frame(fd, until);
    if (!answer) return std::unexpected(as_restart(answer.error()));
    if (answer->header.type == local::frame_type::failure) {
      if (answer->header.request != request && answer->header.request != 0) continue;
      return std::unexpected(local::decode_failure(answer->payload));
    }
    if (answer->header.request != request) continue;
    if (answer->header.type != expected)
      return fail(error_code::malformed, "the node answered with an unexpected frame");
    return answer;
  }
}

result<attachment> attach_once(const std::string& path, const std::vector<std::byte>& payload, time_point until) {
  auto socket = local::connect_to(path, until);
  if (!socket) return std::unexpected(socket.error());
  local::frame_header header;
  header.type = local::frame_type::attach;
  header.request = 1;
  if (auto sent = local::send_frame(socket->get(), header, payload, {}, until); !sent) {
    return std::unexpected(as_restart(sent.error()));
  }
  auto reply = receive_answer(socket->get(), header.request, local::frame_type::attach_reply, until);
  if (!reply) return std::unexpected(reply.error());
  return read_reply(std::move(*socket), std::move(*reply));
}

}  // namespace

error never_came() {
  return {error_code::node_restarting, "the node's worker is away and did not come back before the deadline"};
}

result<attachment> attach_to(const std::string& path, local::attach_request request, time_point until) {
  request.call = random_number();
  const auto payload = local::encode(request, local::protocol_minor);
  if (payload.size() > local::max_payload) {
    return fail(error_code::invalid_argument, "the instance spec is longer than a frame of 64 KiB");
  }
  for (;;) {
    auto done = attach_once(path, payload, until);
    const bool again = !done && done.error().code() == error_code::node_restarting;
    if (!again || steady_clock::now() + retry_pause >= until) return done;
    std::this_thread::sleep_for(retry_pause);
  }
}

connection::connection(std::string path, unique_fd socket, const local::attach_reply& ids) noexcept
    : path_(std::move(path)), socket_(std::move(socket)), ids_(ids) {}

bool connection::hung_up() const noexcept {
  pollfd entry{socket_.get(), 0, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/// Why the socket could not be had: another thread had it all the time.
error connection::occupied() const {
  if (hung_up()) return never_came();
  return {error_code::deadline_exceeded, "another call of this session waited for the node until the deadline"};
}

/// The number of the request.
result<std::uint32_t> connection::send(int fd, local::frame_type type, std::span<const std::byte> payload,
                                       time_point until) {
  local::frame_header header;
  header.type = type;
  header.request = next_request_++;
  if (auto sent = local::send_frame(fd, header, payload, {}, until); !sent) {
    return std::unexpected(as_restart(sent.error()));
  }
  return header.request;
}

result<local::frame> connection::exchange(local::frame_type type, std::span<const std::byte> payload,
                                          local::frame_type expected, time_point until) {
  const auto number = send(socket_.get(), type, payload, until);
  if (!number) return std::unexpected(number.error());
  return receive_answer(socket_.get(), *number, expected, until);
}

result<void> connection::fetch_slabs(const std::vector<std::uint32_t>& wanted, const memory::version_table& versions,
                                     slab_map& slabs, time_point until) {
  const std::unique_lock<deadline_mutex> lock(mutex_, until);
  if (!lock.owns_lock()) return std::unexpected(occupied());
  std::vector<std::uint32_t> missing;
  for (const std::uint32_t index : wanted) {
    if (slabs.find(index) == nullptr) missing.push_back(index);
  }
  while (!missing.empty()) {
    const std::size_t n = std::min(missing.size(), slabs_a_query);
    const std::vector<std::uint32_t> some(missing.end() - static_cast<std::ptrdiff_t>(n), missing.end());
    if (auto ok = fetch_some(some, versions, slabs, until); !ok) return ok;
    missing.resize(missing.size() - n);
  }
  return {};
}

result<void> connection::fetch_some(const std::vector<std::uint32_t>& wanted, const memory::version_table& versions,
                                    slab_map& slabs, time_point until) {
  auto answer =
      exchange(local::frame_type::slabs, local::encode_slab_query(wanted), local::frame_type::slabs_reply, until);
  if (!answer) return std::unexpected(answer.error());
  const auto found = local::decode_slabs(answer->payload);
  if (!found) return std::unexpected(found.error());
  if (found->size() != answer->fds.size()) {
    return fail(error_code::malformed, "a slab reply has another number of descriptors than of slabs");
  }
  for (std::size_t i = 0; i < found->size(); ++i) {
    const local::slab_descriptor& slab = (*found)[i];
    if (slab.index >= memory::block_ref::max_slabs) return fail(error_code::malformed, "a slab index is out of range");
    const memory::slab_entry* entry = versions.slab(slab.index);
    if (entry == nullptr) return fail(error_code::limit_exceeded, "no address space for the directory of slabs");
    if (entry->state.load(std::memory_order_acquire) == static_cast<std::uint32_t>(memory::slab_state::none)) continue;
    const slab_shape shape{slab.index, entry->count, entry->stride, entry->group};
    if (auto ok = slabs.add(shape, std::move(answer->fds[i]), slab.bytes); !ok) return ok;
  }
  return {};
}

result<local::unconfirmed_reply> connection::ask_unconfirmed(time_point deadline) {
  const std::unique_lock<deadline_mutex> lock(mutex_, deadline);
  if (!lock.owns_lock()) return std::unexpected(occupied());
  const auto answer = exchange(local::frame_type::unconfirmed, {}, local::frame_type::unconfirmed_reply, deadline);
  if (!answer) return std::unexpected(answer.error());
  return local::decode_unconfirmed_reply(answer->payload);
}

result<unique_fd> connection::introduce(const held_list& what, time_point until, const std::atomic<bool>& given_up) {
  auto socket = local::connect_to(path_, std::min(until, steady_clock::now() + look_at_caller));
  if (!socket) return socket;
  const local::reattach_request request{
      .session = ids_.session, .secret = ids_.secret, .listed_in = what.epoch, .held = what.blocks};
  const auto number =
      send(socket->get(), local::frame_type::reattach, local::encode(request, local::protocol_minor), until);
  if (!number) return std::unexpected(number.error());
  if (auto ok = await_word(socket->get(), until, given_up); !ok) return std::unexpected(ok.error());
  auto answer = receive_answer(socket->get(), *number, local::frame_type::reattach_reply, until);
  if (!answer) return std::unexpected(answer.error());
  return socket;
}

result<void> connection::reattach(const held_list& held, time_point until, const std::atomic<bool>& given_up) {
  const std::unique_lock<deadline_mutex> lock(mutex_, until);
  if (!lock.owns_lock()) return std::unexpected(never_came());
  while (!given_up.load(std::memory_order_relaxed)) {
    auto socket = introduce(held, until, given_up);
    if (socket) {
      // The number stays: other threads may be polling it.
      if (::dup3(socket->get(), socket_.get(), O_CLOEXEC) < 0) return fail_errno("dup3");
      return {};
    }
    const error_code code = socket.error().code();
    if (code != error_code::node_restarting && code != error_code::deadline_exceeded) {
      return std::unexpected(socket.error());
    }
    if (steady_clock::now() + retry_pause >= until) return std::unexpected(never_came());
    std::this_thread::sleep_for(retry_pause);
  }
  return fail(error_code::closed, "the session is closed");
}

result<void> connection::detach(time_point until) {
  const std::unique_lock<deadline_mutex> lock(mutex_, until);
  if (!lock.owns_lock()) return std::unexpected(occupied());
  auto answer = exchange(local::frame_type::detach, {}, local::frame_type::done, until);
  return answer ? result<void>{} : std::unexpected(answer.error());
}

}  // namespace cenote::client
