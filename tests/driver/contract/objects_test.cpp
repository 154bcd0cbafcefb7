#include <string_view>

#include "contract/fixture.hpp"

namespace emm {
namespace {

std::span<const std::byte> image(std::string_view text) { return std::as_bytes(std::span(text)); }

// Documented: cuEventCreate and cuEventDestroy.
TEST_P(DriverContract, EventsAreMadeAndDestroyed) {
  const auto first = driver().event_create();
  const auto second = driver().event_create();
  ASSERT_TRUE(first && second);

  EXPECT_NE(*first, *second);
  EXPECT_TRUE(driver().event_destroy(*first));
  EXPECT_TRUE(driver().event_destroy(*second));
}

// Documented: cuStreamCreate, cuStreamSynchronize and cuStreamDestroy.
TEST_P(DriverContract, StreamsAreMadeSynchronizedAndDestroyed) {
  const auto stream = driver().stream_create();
  ASSERT_TRUE(stream);

  EXPECT_TRUE(driver().stream_synchronize(*stream));
  EXPECT_TRUE(driver().stream_synchronize({}));
  EXPECT_TRUE(driver().ctx_synchronize());
  EXPECT_TRUE(driver().stream_destroy(*stream));
}

// Documented: cuLibraryLoadData.
TEST_P(DriverContract, LibrariesAreLoadedFromPtx) {
  const auto library =
      driver().library_load(image(".version 7.0\n.target sm_50\n.address_size 64\n"));

  ASSERT_TRUE(library);
  EXPECT_TRUE(driver().library_unload(*library));
}

// Measured (driver 580.159.04): loading is lazy, so that an image is not looked at before it is
// used.
TEST_P(DriverContract, LoadingALibraryDoesNotLookAtIt) {
  const auto library = driver().library_load(image("not an image"));

  ASSERT_TRUE(library);
  EXPECT_TRUE(driver().library_unload(*library));
}

// Documented: cuDeviceGetName and CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY.
TEST_P(DriverContract, ADeviceSaysWhatItIs) {
  EXPECT_FALSE(driver().device_name().empty());
  EXPECT_EQ(driver().device_ordinal(), 0);
  EXPECT_TRUE(driver().can_map_host_memory());
}

// driver.hpp: an error and not a yes.
TEST_P(DriverContract, AnUnknownDeviceIsNoPeer) {
  EXPECT_FALSE(
      driver().can_access_peer({.pci_domain_id = 99, .pci_bus_id = 99, .pci_device_id = 9}));
}

}  // namespace
}  // namespace emm
