// The tier of one device: opened in the background, since a GPU's context takes up to a second.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/data_path.hpp"
#include "actors/messages.hpp"
#include "actors/pulse.hpp"
#include "config/node_config.hpp"
#include "device/device.hpp"
#include "tiers/blocks/provisioner.hpp"
#include "tiers/gpu/copy_thread.hpp"
#include "transport/local/keeper_link.hpp"
#include "worker/recovery.hpp"

namespace cenote {

/// `suspects`: sessions that several workers died of (store::suspects).
using device_teller = std::function<void(device_news, std::vector<std::shared_ptr<session_resources>>,
                                         std::vector<std::uint64_t> suspects)>;

/// What a worker gives the tier of a device. What is given by reference outlives it.
struct device_host_needs {
  caf::actor_system& system;
  data_path& path;
  local::keeper_link& keeper;
  config_ptr config;
  dram_tier_actor dram;
  std::uint64_t epoch = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> exceptions;
  gpu::copy_thread& copies;  ///< for this device alone
  /// Hears what becomes of the tier, on a thread of its own: first `ready`, with sessions that the last worker had, or
  /// `away`; `away` may also come later.
  device_teller tell;
};

/// Opens the device, takes over what the last worker had there, and starts its actors. The keeper holds its slabs, as
/// it holds those of DRAM.
class device_host {
 public:
  /// `entries`: what the keeper holds of the tier. Begins at once.
  device_host(tier_number tier, const std::string& device, device_host_needs needs,
              std::vector<local::registry_entry> entries);
  device_host(const device_host&) = delete;
  device_host& operator=(const device_host&) = delete;
  /// The actors have ended; ends what the device still does.
  ~device_host();

  /// Waits until the device is open, or is not, and ends the actors.
  void end_actors();
  /// Has its actors asked for signs of life, once they are there. Called again and again, on one thread.
  void watch_over(pulse& all);

 private:
  void run(std::vector<local::registry_entry> entries);
  result<void> open(std::vector<local::registry_entry>& entries);
  result<void> begin(recovered_state state);
  void make_provisioner();
  [[nodiscard]] lower_tier make_below();
  void lost(const std::string& why);
  void say(device_phase phase, const std::string& why);
  [[nodiscard]] result<memory::slab_mapping> map_slab(unique_fd fd, std::uint64_t bytes) const;
  [[nodiscard]] result<memory::slab_mapping> make_slab(const blocks::slab_description& slab) const;

  const tier_number tier_;
  const std::string given_;  ///< as the configuration says
  std::string device_name_;
  device_host_needs needs_;
  std::shared_ptr<device> device_;
  std::shared_ptr<const void> store_;  ///< for its memory: device and provisioner outlive the tier's actor
  std::unique_ptr<blocks::provisioner> provisioner_;
  std::promise<dram_tier_actor> top_;  ///< for the provisioner, which may be faster
  instance_maker_actor maker_;
  device_stack stack_;
  const bool is_awaited_;              ///< by the DRAM tier: there are blocks of an earlier worker
  bool has_asked_ = false;             ///< the DRAM tier to tell of removals
  bool is_watched_ = false;            ///< of who calls watch_over()
  std::atomic<bool> is_begun_{false};  ///< what is above does not change any more
  std::thread thread_;                 ///< last: it uses the rest
};

}  // namespace cenote
