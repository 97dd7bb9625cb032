//! Virtual station interfaces.

use super::super::{AdminError, AdminQueue, Data};
use ringside_spec::lan::admin::Opcode;
use ringside_spec::lan::admin::vsi::{VsiAnswer, VsiCommand, VsiNumber, VsiProperties, VsiType};
use ringside_spec::lan::identity::VSI_COUNT;
use zerocopy::IntoBytes;

impl AdminQueue {
    /// Adds a VSI of this [`kind`](ringside_spec::lan::admin::vsi::kind) to the function (0x0210);
    /// the firmware chooses its number, which is returned.
    pub fn add_vsi(&self, kind: u16, properties: &VsiProperties) -> Result<u16, AdminError> {
        let opcode = Opcode::AddVsi;
        let parameters = VsiCommand {
            vsi_flags: VsiType::ZERO.with_kind(kind).0.into(),
            ..VsiCommand::zeroed()
        };
        let answer = self.execute(opcode, &parameters, Data::Send(properties.as_bytes()))?;
        let added = VsiNumber(answer.parameters::<VsiAnswer>().number.get()).number();
        if added >= VSI_COUNT {
            let reason = format!("VSI {added} is beyond the device's {VSI_COUNT}");
            return Err(AdminError::malformed(opcode, reason));
        }
        Ok(added)
    }

    /// Changes the sections of VSI `number` that `properties` marks (0x0211).
    pub fn update_vsi(&self, number: u16, properties: &VsiProperties) -> Result<(), AdminError> {
        let parameters = command(number);
        let data = Data::Send(properties.as_bytes());
        self.execute(Opcode::UpdateVsi, &parameters, data)?;
        Ok(())
    }

    /// Frees VSI `number` (0x0213).
    pub fn free_vsi(&self, number: u16) -> Result<(), AdminError> {
        self.execute(Opcode::FreeVsi, &command(number), Data::None)?;
        Ok(())
    }
}

fn command(number: u16) -> VsiCommand {
    VsiCommand {
        number: VsiNumber::ZERO
            .with_number(number)
            .with_valid(true)
            .0
            .into(),
        ..VsiCommand::zeroed()
    }
}
