#include "services/indexer/placement/name_domains.hpp"

#include <algorithm>
#include <utility>

namespace cenote::indexer {

adapter_domains* name_domains::obtain(std::vector<adapter_domains>& present, model_number model,
                                      std::string_view lora_name) {
  const auto found = std::ranges::find(present, lora_name, &adapter_domains::lora_name);
  if (found != present.end()) return &*found;
  if (present.size() == most_adapters) return nullptr;
  std::pair key{model, std::string(lora_name)};
  auto shared = shared_.find(key);
  if (shared == shared_.end()) {
    const auto number = index_.begin_domain();
    if (!number) return nullptr;
    shared = shared_.emplace(std::move(key), shared_domain{*number, 0}).first;
  }
  ++shared->second.users;
  return &present.emplace_back(std::string(lora_name), shared->second.number, no_domain);
}

bool name_domains::split(adapter_domains& changed) {
  const auto number = index_.begin_domain();
  if (!number) return false;
  changed.private_one = *number;
  return true;
}

void name_domains::renew(std::vector<adapter_domains>& present, model_number model) {
  for (adapter_domains& domains : present) {
    if (domains.private_one != no_domain) index_.end_domain(std::exchange(domains.private_one, no_domain));
    shared_domain& shared = shared_.find(std::pair{model, domains.lora_name})->second;
    if (shared.users > 1) continue;
    const auto number = index_.begin_domain();
    if (!number) continue;
    index_.end_domain(shared.number);
    domains.shared = shared.number = *number;
  }
}

void name_domains::release(std::vector<adapter_domains>& present, model_number model) {
  for (const adapter_domains& domains : present) {
    if (domains.private_one != no_domain) index_.end_domain(domains.private_one);
    const auto shared = shared_.find(std::pair{model, domains.lora_name});
    if (--shared->second.users > 0) continue;
    index_.end_domain(shared->second.number);
    shared_.erase(shared);
  }
  present.clear();
}

}  // namespace cenote::indexer
