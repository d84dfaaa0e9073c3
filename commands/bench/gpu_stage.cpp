#include "commands/bench/gpu_stage.hpp"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <thread>
#include <utility>

namespace cenote::bench {

namespace {

constexpr double longest_wait = 60;  // seconds

constexpr std::array<std::string_view, kv_layout_count> axes_of_layouts{
    "kpthd", "pkthd", "pkhtd",  "kphtd",  "phtd", "ptd",  "shd",   "shd",
    "klshd", "kslhd", "kplthd", "kphtld", "lshd", "slhd", "plthd",
};

std::uint64_t size_of(char axis, const kv_shape& shape) noexcept {
  switch (axis) {
    case 'k': return 2;
    case 'l': return shape.layers;
    case 'p': return shape.pages;
    case 's': return shape.pages * shape.page_tokens;
    case 't': return shape.page_tokens;
    case 'h': return shape.heads;
    default: return shape.head_items;
  }
}

std::string about_gpu(const cuda::cuda_device& gpu, const std::string& which) {
  std::string text = which + ": " + gpu.description() + ".\n";
  if (!gpu.without_kernels().empty()) text += "Pages are moved by copies only: " + gpu.without_kernels() + ".\n";
  return text;
}

std::string about_sim(const std::string& which, const std::string& why) {
  return fmt::format(
      "{}Not measured on a GPU: {} is a simulated device, threads that copy by memcpy. Its rows say that the bench "
      "runs,\n"
      "and nothing of a GPU; only the rows `processor` are figures.\n",
      why.empty() ? "" : "No GPU: " + why + ".\n", which);
}

}  // namespace

result<gpu_stage> gpu_stage::open(const std::string& which) {
  std::string name = which.empty() ? "cuda:0" : which;
  std::string why;
  auto opened = device::open(name);
  if (!opened && which.empty() && opened.error().code() == error_code::unsupported) {
    why = opened.error().message();
    name = "sim:0";
    opened = device::open(name);
  }
  if (!opened) return std::unexpected(opened.error());
  gpu_stage made;
  made.device_ = std::move(*opened);
  auto stream = made.device_->make_stream();
  if (!stream) return std::unexpected(stream.error());
  made.stream_ = std::move(*stream);
  made.about_ = made.gpu() != nullptr ? about_gpu(*made.gpu(), name) : about_sim(name, why);
  return made;
}

void gpu_stage::add(report& out, figure measured) const {
  measured.measured = gpu() != nullptr;
  measured.bench = measured.measured ? "gpu" : "gpu (sim)";
  out.add(std::move(measured));
}

result<double> gpu_stage::seconds(const stream_ref& on, const work& given) const {
  const stopwatch watch;
  if (auto begun = given(); !begun) return std::unexpected(begun.error());
  const auto end = device_->record(on);
  if (!end) return std::unexpected(end.error());
  for (;;) {
    switch (device_->look(*end)) {
      case event_state::done: return watch.seconds();
      case event_state::failed:
        return fail(error_code::system, "the device failed" + (gpu() == nullptr ? "" : ": " + gpu()->loss()));
      case event_state::pending: break;
    }
    if (watch.seconds() > longest_wait) return fail(error_code::deadline_exceeded, "the device does not end its work");
    std::this_thread::yield();
  }
}

result<std::vector<samples>> gpu_stage::in_turn(unsigned rounds, const std::vector<work>& works) const {
  std::vector<samples> all(works.size());
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    for (std::size_t i = 0; i < works.size(); ++i) {
      const auto taken = seconds(works[i]);
      if (!taken) return std::unexpected(taken.error());
      if (round != 0) all[i].add(*taken);
    }
  }
  return all;
}

host_memory::host_memory(const gpu_stage& stage, std::uint64_t bytes, bool registers)
    : on_(stage.on()), bytes_(bytes), memory_(1, bytes) {
  if (!registers) return;
  if (auto done = on_.register_host(span()); !done) {
    why_ = done.error().message();
  } else {
    registered_ = true;
  }
}

host_memory::~host_memory() {
  if (registered_) on_.unregister_host(span());
}

engine_views engine_tensors(kv_layout kind, const kv_shape& shape, std::byte* base, std::uint64_t gap) {
  const std::string_view axes = axes_of_layouts[static_cast<std::size_t>(kind)];
  const bool one = axes.find('l') != std::string_view::npos;
  const std::size_t count = one ? 1 : shape.layers * (kind == kv_layout::pool ? 2 : 1);
  tensor_view view{base, std::vector<std::uint64_t>(axes.size()), std::vector<std::uint64_t>(axes.size())};
  std::uint64_t inside = 1;
  for (std::size_t axis = axes.size(); axis-- > 0;) {
    if (axis + 1 != axes.size()) inside += gap;
    view.sizes[axis] = size_of(axes[axis], shape);
    view.strides[axis] = inside;
    inside *= view.sizes[axis];
  }
  engine_views made;
  for (std::size_t i = 0; i < count; ++i) {
    made.views.push_back(view);
    view.base += inside * shape.item_bytes;
  }
  made.bytes = count * inside * shape.item_bytes;
  return made;
}

std::vector<std::byte*> blocks_at(std::byte* base, std::size_t count, std::uint64_t bytes) {
  std::vector<std::byte*> made(count);
  for (std::size_t i = 0; i < count; ++i) made[i] = base + i * bytes;
  return made;
}

}  // namespace cenote::bench
