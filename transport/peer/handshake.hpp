// How two nodes prove to each other that they know one secret, without saying it: HMAC-SHA256 (RFC 2104) over both
// greetings, whose nonces are new in each link.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "transport/peer/messages.hpp"
#include "transport/peer/network.hpp"

namespace cenote::peer {

/// What the nodes of a cluster share; wiped when it ends. Empty: there is none, and everybody can prove to know it.
class secret {
 public:
  secret() = default;
  explicit secret(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  secret(const secret&) = default;
  secret(secret&&) = default;
  secret& operator=(const secret&) = default;
  secret& operator=(secret&&) = default;
  ~secret();

  [[nodiscard]] bool is_empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// From the system's generator.
[[nodiscard]] nonce new_nonce() noexcept;

/// What a link's two greetings, as they were sent, prove and agree on. The labels differ, so that no side can show the
/// other one's proof.
struct agreement {
  proof of_listener{};  ///< in the challenge
  proof of_dialler{};   ///< in the welcome
  ticket for_blocks{};
};
[[nodiscard]] agreement agree(const secret& shared, std::span<const std::byte> dialler_greeting,
                              std::span<const std::byte> listener_greeting);

/// Shows a side with the same key that this one has it; `label` and `context` are what the proof is good for alone.
[[nodiscard]] proof prove(std::span<const std::byte> key, std::string_view label, std::span<const std::byte> context);

/// In a time that does not tell where they differ.
[[nodiscard]] bool are_equal(const proof& one, const proof& other) noexcept;

}  // namespace cenote::peer
