#include "transport/ucx/connection_proof.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/byte_io.hpp"
#include "core/random_number.hpp"
#include "core/socket_address.hpp"

namespace cenote::ucx {

namespace {

using wall_clock = std::chrono::system_clock;

/// As a length, which UCX takes it for in a process without this check, it is too long for anything.
constexpr std::array<char, 8> proof_magic{'C', 'E', 'N', 'O', 'T', 'E', '1', '\n'};
/// Of a proof between two processes of one machine, whose clock is the same. A process that takes the address of a node
/// that is away gets proofs that are good there, and has so long to use them.
constexpr std::chrono::seconds proof_lasts{60};
constexpr int silent_seconds = 2;  // the kernel makes three of them: it counts its own repetitions

/// Little endian as all processors are that Cenote runs on.
struct shown_proof {
  std::array<char, 8> magic = proof_magic;
  std::int64_t made_ms = 0;  ///< since 1970
  std::array<std::byte, 16> salt{};
  peer::proof right{};
};
static_assert(sizeof(shown_proof) == 64);

std::atomic<std::shared_ptr<const peer::secret>>& secret_in_use() {
  static std::atomic<std::shared_ptr<const peer::secret>> held{std::make_shared<const peer::secret>()};
  return held;
}

std::atomic<std::uint64_t>& count_without_proof() noexcept {
  static std::atomic<std::uint64_t> count{0};
  return count;
}

std::int64_t now_ms() noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(wall_clock::now().time_since_epoch()).count();
}

using name_of_end = int (*)(int, sockaddr*, socklen_t*);

std::optional<socket_address> address_of(int socket, name_of_end name) noexcept {
  socket_address found;
  found.size = sizeof(found.bytes);
  if (name(socket, reinterpret_cast<sockaddr*>(&found.bytes), &found.size) != 0) return std::nullopt;
  return found;
}

/// For the address that was dialled, so that it is of no use at another one.
peer::proof right_proof(const shown_proof& head, const socket_address& dialled) {
  byte_writer writer;
  writer.put(head.made_ms);
  writer.put_raw(head.salt);
  writer.put_text(dialled.where().text());
  return peer::prove(secret_in_use().load()->bytes(), "cenote connection", writer.bytes());
}

bool is_in_time(const shown_proof& head, const socket_address& local, const socket_address& other) {
  if (!local.is_loopback() && !local.is_same_host(*other.get())) return true;  // another machine's clock
  return std::abs(now_ms() - head.made_ms) <= std::chrono::milliseconds(proof_lasts).count();
}

bool is_right(const shown_proof& head, int socket) {
  const auto own = address_of(socket, &::getsockname);
  const auto other = address_of(socket, &::getpeername);
  if (!own || !other || head.magic != proof_magic || !is_in_time(head, *own, *other)) return false;
  return peer::are_equal(head.right, right_proof(head, *own));
}

}  // namespace

void use_connection_secret(const peer::secret& shared) {
  secret_in_use().store(std::make_shared<const peer::secret>(shared));
}

std::uint64_t connections_without_proof() noexcept {
  return count_without_proof().load(std::memory_order_relaxed);
}

bool show_proof(int socket) noexcept {
  const auto dialled = address_of(socket, &::getpeername);
  if (!dialled) return false;
  shown_proof head;
  head.made_ms = now_ms();
  fill_randomly(head.salt);
  head.right = right_proof(head, *dialled);
  // A buffer that is empty takes all of it. It leaves with the bytes that follow, so that UCX has sent them before the
  // other side can close the connection.
  return ::sendto(socket, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_MORE, nullptr, 0) ==
         static_cast<ssize_t>(sizeof head);
}

bool take_proof(int socket) noexcept {
  shown_proof head;
  const auto size = static_cast<ssize_t>(sizeof head);
  const bool is_proved = ::recv(socket, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT) == size &&
                         is_right(head, socket) && ::recv(socket, &head, sizeof head, MSG_DONTWAIT) == size;
  if (!is_proved) count_without_proof().fetch_add(1, std::memory_order_relaxed);
  return is_proved;
}

bool hold_silent_connections(int listening) noexcept {
  return ::setsockopt(listening, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent_seconds, sizeof silent_seconds) == 0;
}

}  // namespace cenote::ucx
