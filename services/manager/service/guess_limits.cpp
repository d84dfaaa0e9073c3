#include "services/manager/service/guess_limits.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

namespace cenote::manager {

std::string network_of(const std::string& address) {
  in6_addr number{};
  if (::inet_pton(AF_INET6, address.c_str(), &number) != 1) return address;
  constexpr std::size_t mapped_bytes = 4;
  const char* const bytes = reinterpret_cast<const char*>(&number);
  if (IN6_IS_ADDR_V4MAPPED(&number)) return {bytes + sizeof number - mapped_bytes, mapped_bytes};
  return {bytes, sizeof number / 2};
}

std::chrono::nanoseconds guess_limits::delay(const std::string& address, time_point now) {
  const std::lock_guard lock(mutex_);
  const guesses* const entry = networks_.find(network_of(address));
  if (entry == nullptr || entry->number < most_guesses || now >= entry->begin + period) return {};
  return entry->begin + period - now;
}

void guess_limits::add(const std::string& address, time_point now) {
  const std::string network = network_of(address);
  const std::lock_guard lock(mutex_);
  guesses* entry = networks_.find(network);
  if (entry == nullptr || now >= entry->begin + period) entry = &networks_.put(network, {.number = 0, .begin = now});
  ++entry->number;
}

}  // namespace cenote::manager
