// Addresses of a server: a path, numbers, or a name that is looked up.
#include "tiers/remote/redis_site.hpp"

#include <utility>

#include "tiers/remote/rendezvous.hpp"

namespace cenote::remote {

redis_site::redis_site(redis::server_address address, const redis_settings& settings, epoch_book& book,
                       std::function<void()> wake, name_lookup lookup)
    : address_(std::move(address)),
      name_(address_.text()),
      id_(seed_of(name_ + "/" + std::to_string(settings.database) + "/" + settings.prefix)),
      book_(&book),
      names_(address_.place, std::move(wake), std::move(lookup)) {}

std::uint64_t redis_site::seed() const noexcept {
  return seed_of(name_);
}

const result<socket_addresses>* redis_site::addresses(steady_time now) {
  constexpr auto good_for = std::chrono::seconds(1);
  if (auto numbers = redis::fixed_addresses(address_)) {
    found_ = std::move(*numbers);
    return &*found_;
  }
  if (auto told = names_.take()) {
    found_ = std::move(*told);
    found_at_ = now;
  }
  if (found_ && now - found_at_ < good_for) return &*found_;
  if (auto asked = names_.ask(); !asked) {
    found_ = std::unexpected(asked.error());
    return &*found_;
  }
  return nullptr;
}

}  // namespace cenote::remote
