#include <array>
#include <string>

#include "tiers/eviction/arc.hpp"
#include "tiers/eviction/automatic.hpp"
#include "tiers/eviction/clock.hpp"
#include "tiers/eviction/fifo.hpp"
#include "tiers/eviction/lfu.hpp"
#include "tiers/eviction/lru.hpp"
#include "tiers/eviction/mq.hpp"
#include "tiers/eviction/policy.hpp"
#include "tiers/eviction/s3fifo.hpp"
#include "tiers/eviction/sieve.hpp"
#include "tiers/eviction/tblru.hpp"
#include "tiers/eviction/two_queue.hpp"

namespace cenote::eviction {

namespace {

template <class P>
std::unique_ptr<policy> make(block_links& links) {
  return std::make_unique<P>(links);
}

template <class P>
std::unique_ptr<policy> make_with_partial(block_links& links) {
  return std::make_unique<P>(links, partial_blocks::admitted);
}

struct known_policy {
  std::string_view name;
  std::unique_ptr<policy> (*make)(block_links& links);
};

constexpr std::array known{known_policy{"fifo", make<fifo>},
                           known_policy{"lru", make<lru>},
                           known_policy{"lfu", make<lfu>},
                           known_policy{"clock", make<clock>},
                           known_policy{"sieve", make<sieve>},
                           known_policy{"s3fifo", make<s3fifo>},
                           known_policy{"arc", make<arc>},
                           known_policy{"2q", make<two_queue>},
                           known_policy{"mq", make<mq>},
                           known_policy{"tblru", make<tblru>},
                           known_policy{"mq+partial", make_with_partial<mq>},
                           known_policy{"tblru+partial", make_with_partial<tblru>},
                           known_policy{"auto", make<automatic>}};

constexpr auto names = [] {
  std::array<std::string_view, known.size()> all;
  for (std::size_t i = 0; i < known.size(); ++i) all[i] = known[i].name;
  return all;
}();

}  // namespace

std::span<const std::string_view> policy_names() noexcept {
  return names;
}

result<std::unique_ptr<policy>> make_policy(std::string_view name, block_links& links) {
  std::string list;
  for (const known_policy& each : known) {
    if (each.name == name) return each.make(links);
    list += (list.empty() ? "" : ", ") + std::string(each.name);
  }
  return fail(error_code::invalid_config, "unknown eviction policy `" + std::string(name) + "`; known: " + list);
}

}  // namespace cenote::eviction
