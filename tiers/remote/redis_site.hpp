// One Redis server as a backend knows it: address, password, epochs.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/calendar_clock.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "tiers/remote/epoch_book.hpp"
#include "tiers/remote/redis_request.hpp"
#include "tiers/remote/removal_stamps.hpp"
#include "transport/redis/resolver.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::remote {

/// What all connections of a backend go by.
struct redis_settings {
  std::string prefix;
  std::string user;
  std::uint32_t database = 0;
  std::filesystem::path credentials;  ///< empty: none
  std::optional<tls::client_settings> tls;
  std::chrono::milliseconds timeout{2000};
  std::chrono::milliseconds first_back_off{1000};
  std::chrono::milliseconds last_back_off{30000};
  std::chrono::milliseconds ping_every{2000};
  std::function<std::uint64_t()> calendar = calendar_ns;  ///< nanoseconds since 1970, for epochs
};

/// Shared by the connections to a server. Not thread-safe.
class redis_site {
 public:
  redis_site(redis::server_address address, const redis_settings& settings, epoch_book& book,
             std::function<void()> wake, name_lookup lookup);

  /// Its addresses; nothing while the name is looked up. An answer is good for a second.
  [[nodiscard]] const result<socket_addresses>* addresses(steady_time now);
  /// Of server, database and prefix, in the book.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] epoch_book::place place_of(instance_identity identity) const noexcept { return {id_, identity}; }
  [[nodiscard]] epoch_book& book() noexcept { return *book_; }
  [[nodiscard]] removal_stamps& stamps() noexcept { return stamps_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& host() const noexcept { return address_.place.host; }
  [[nodiscard]] std::uint64_t seed() const noexcept;

 private:
  redis::server_address address_;
  std::string name_;
  std::uint64_t id_;  ///< of server, database and prefix, in the book
  epoch_book* book_;
  removal_stamps stamps_;
  redis::resolver names_;
  std::optional<result<socket_addresses>> found_;
  steady_time found_at_{};
};

}  // namespace cenote::remote
